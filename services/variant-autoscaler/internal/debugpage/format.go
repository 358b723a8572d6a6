package debugpage

import (
	"fmt"
	"html/template"
	"math"
	"strconv"
	"time"
)

// formatFuncs are the functions of the page: they format values for people. The JSON has plain numbers.
func formatFuncs() template.FuncMap {
	return template.FuncMap{"number": formatNumber, "percent": formatPercent, "age": formatAge, "span": formatSpan}
}

// formatNumber formats a number with four digits, or as much as it takes without an exponent up to a million.
func formatNumber(x float64) string {
	switch size := math.Abs(x); {
	case size >= 1e6:
		return strconv.FormatFloat(x, 'g', 4, 64)
	case size >= 1000:
		return strconv.FormatFloat(x, 'f', 0, 64)
	default:
		return fmt.Sprintf("%.4g", x)
	}
}

// formatPercent formats a share. It is never rounded up to all.
func formatPercent(share float64) string { return formatNumber(math.Floor(share*1000)/10) + " %" }

// formatAge formats seconds.
func formatAge(seconds float64) string {
	return time.Duration(seconds * float64(time.Second)).Round(time.Second).String()
}

// formatSpan formats a period in hours and minutes.
func formatSpan(d time.Duration) string {
	minutes := int(d.Round(time.Minute).Minutes())
	if minutes < 60 { // an hour
		return fmt.Sprintf("%d min", minutes)
	}
	return fmt.Sprintf("%d h %d min", minutes/60, minutes%60) // an hour
}
