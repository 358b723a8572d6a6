package debugpage

import (
	"fmt"
	"html/template"
	"math"
	"strconv"
	"time"
)

// formatFuncs are the functions of all pages: they format values with units for people. The JSON has plain numbers.
func formatFuncs() template.FuncMap {
	return template.FuncMap{
		"seconds": formatSeconds, "percent": formatPercent, "bytes": byteSize, "count": formatCount, "million": toMillion,
		"number": formatNumber, "share": formatShare, "age": formatAge, "span": formatSpan,
	}
}

// formatSeconds formats a duration with three digits and a suitable unit.
func formatSeconds(s float64) string {
	switch {
	case s == 0:
		return "0"
	case s < 1e-3:
		return fmt.Sprintf("%.3g µs", s*1e6)
	case s < 1:
		return fmt.Sprintf("%.3g ms", s*1e3)
	default:
		return fmt.Sprintf("%.2f s", s)
	}
}

// toMillion converts a cost of one thing to that of a million.
func toMillion(cost float64) float64 { return cost * 1e6 }

func formatPercent(part float64) string { return fmt.Sprintf("%.1f %%", part*100) }

func byteSize(n int) string {
	switch {
	case n < 1<<10:
		return fmt.Sprintf("%d B", n)
	case n < 1<<20:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	default:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
}

// formatCount formats an integer, or a gauge that counts, with commas between thousands.
func formatCount(n any) string {
	digits := fmt.Sprint(n)
	if gauge, is := n.(float64); is {
		digits = strconv.FormatFloat(gauge, 'f', 0, 64)
	}
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
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

// formatShare formats a part in percent. It is never rounded up to all.
func formatShare(share float64) string { return formatNumber(math.Floor(share*1000)/10) + " %" }

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
