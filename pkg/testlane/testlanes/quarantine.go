package main

import (
	"fmt"
	"strings"
	"time"
)

// maxDays is how long a test may stay in quarantine.
const maxDays = 14

// checkQuarantine checks a quarantine file. An entry is a line with a date, a package and the name of a test. Lines that begin with a blank
// are the end of the log of its failure. Lines that begin with # are comments.
func checkQuarantine(file string, now time.Time) []string {
	var problems []string
	open := "" // an entry whose log is missing
	missingLog := func() {
		if open != "" {
			problems = append(problems, "quarantine: "+open+": add the last lines of the log, each after a blank")
		}
		open = ""
	}
	for line := range strings.Lines(file) {
		line = strings.TrimRight(line, "\n")
		switch {
		case strings.TrimSpace(line) == "" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, " ") || strings.HasPrefix(line, "\t"):
			open = ""
		default:
			missingLog()
			if problem := checkEntry(line, now); problem != "" {
				problems = append(problems, problem)
			} else {
				open = line
			}
		}
	}
	missingLog()
	return problems
}

func checkEntry(line string, now time.Time) string {
	fields := strings.Fields(line)
	if len(fields) != 3 || !strings.HasPrefix(fields[2], "Test") {
		return fmt.Sprintf("quarantine: %q: want a date, a package and the name of a test", line)
	}
	since, err := time.Parse(time.DateOnly, fields[0])
	if err != nil {
		return fmt.Sprintf("quarantine: %q: want a date like 2006-01-02: %v", line, err)
	}
	if days := int(now.Sub(since).Hours() / 24); days > maxDays {
		return fmt.Sprintf("quarantine: %s has been in quarantine for %d days, %d are allowed: find out whether the test or the product is wrong, and mend it",
			fields[2], days, maxDays)
	}
	return ""
}
