// Package body decodes the bodies of requests. It refuses null where an object must be: as the whole body, in a list and as the value
// of a key of a map. The null of a field is a field that is missing, as in Oracle's API.
package body

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
)

// NullError is a null that must be an object.
type NullError struct {
	Path string // from the whole body, such as .backendSets.chat; empty for the body itself
}

// Error formats the error.
func (e *NullError) Error() string {
	if e.Path == "" {
		return "the body is null"
	}
	return strings.TrimPrefix(e.Path, ".") + " is null"
}

// Decode decodes a body. It ignores unknown fields.
func Decode(text []byte, to any) error {
	return decode(json.NewDecoder(bytes.NewReader(text)), to)
}

// DecodeStrict decodes a body, and refuses unknown fields.
func DecodeStrict(text []byte, to any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	return decode(d, to)
}

func decode(d *json.Decoder, to any) error {
	target := reflect.ValueOf(to).Elem()
	whole := reflect.New(reflect.PointerTo(target.Type()))
	whole.Elem().Set(target.Addr())
	if err := d.Decode(whole.Interface()); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("text after the body")
	}
	if whole.Elem().IsNil() {
		return &NullError{}
	}
	if null := findNull(target); null != nil {
		return null
	}
	return nil
}

// findNull looks for null in lists and maps.
func findNull(v reflect.Value) *NullError {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			return findNull(v.Elem())
		}
	case reflect.Struct:
		return inStruct(v)
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return nil
		}
		for i := range v.Len() {
			if null := element(v.Index(i)); null != nil {
				return null.in(fmt.Sprintf("[%d]", i))
			}
		}
	case reflect.Map:
		for entries := v.MapRange(); entries.Next(); {
			if null := element(entries.Value()); null != nil {
				return null.in("." + entries.Key().String())
			}
		}
	}
	return nil
}

func inStruct(v reflect.Value) *NullError {
	for i := range v.NumField() {
		field := v.Type().Field(i)
		if !field.IsExported() {
			continue
		}
		if null := findNull(v.Field(i)); null != nil {
			if field.Anonymous {
				return null
			}
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			return null.in("." + name)
		}
	}
	return nil
}

// element checks an element of a list or of a map.
func element(v reflect.Value) *NullError {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface, reflect.Slice, reflect.Map:
		if v.IsNil() {
			return &NullError{}
		}
	}
	return findNull(v)
}

// in returns the error with the path from the object that has the step.
func (e *NullError) in(step string) *NullError { return &NullError{Path: step + e.Path} }
