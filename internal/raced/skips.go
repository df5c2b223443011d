package main

import "strings"

const module = "github.com/fabrictest/fabrictest"

// skip is what the race step leaves out of the packages that it tests, and why.
type skip struct {
	packages string // below the module, separated by spaces
	tests    string // a pattern, as go test -skip has it
	reason   string
}

// top is the part of the pattern for test functions.
func (s skip) top() string {
	top, _, _ := strings.Cut(s.tests, "/")
	return top
}

var skips = []skip{}

func skipPattern() string {
	var all []string
	for _, s := range skips {
		all = append(all, s.tests)
	}
	return strings.Join(all, "|")
}
