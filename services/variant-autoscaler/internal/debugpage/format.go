package debugpage

import (
	"fmt"
	"html/template"
	"math"
	"strconv"
	"time"
)

// formats are the functions of the page: they format values for people. The JSON has plain numbers.
func formats() template.FuncMap {
	return template.FuncMap{"number": number, "percent": percent, "age": age, "span": span}
}

// number formats a number with four digits, or as much as it takes without an exponent up to a million.
func number(x float64) string {
	switch size := math.Abs(x); {
	case size >= 1e6:
		return strconv.FormatFloat(x, 'g', 4, 64)
	case size >= 1000:
		return strconv.FormatFloat(x, 'f', 0, 64)
	default:
		return fmt.Sprintf("%.4g", x)
	}
}

// percent formats a share. It is never rounded up to all.
func percent(share float64) string { return number(math.Floor(share*1000)/10) + " %" }

// age formats seconds.
func age(seconds float64) string {
	return time.Duration(seconds * float64(time.Second)).Round(time.Second).String()
}

// span formats a period in hours and minutes.
func span(d time.Duration) string {
	minutes := int(d.Round(time.Minute).Minutes())
	if minutes < 60 { //nolint:mnd // an hour
		return fmt.Sprintf("%d min", minutes)
	}
	return fmt.Sprintf("%d h %d min", minutes/60, minutes%60) //nolint:mnd // an hour
}
