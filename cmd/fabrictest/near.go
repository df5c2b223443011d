package main

import (
	"cmp"
	"slices"
	"strings"
)

// maxNear is how many names are worth suggesting.
const maxNear = 5

// near returns the names that whoever wrote name may have meant, the likeliest
// first: those that contain it, and those a few mistakes away.
func near(name string, all []string) []string {
	type guess struct {
		name  string
		score int
	}
	lower := strings.ToLower(name)
	var guesses []guess
	for _, n := range all {
		l := strings.ToLower(n)
		switch d := distance(lower, l); {
		case len(lower) >= 3 && strings.Contains(l, lower):
			guesses = append(guesses, guess{n, 0})
		case d <= 1+min(len(lower), len(l))/3:
			guesses = append(guesses, guess{n, d})
		}
	}
	slices.SortStableFunc(guesses, func(a, b guess) int { return cmp.Compare(a.score, b.score) })
	names := make([]string, 0, maxNear)
	for _, g := range guesses[:min(len(guesses), maxNear)] {
		names = append(names, g.name)
	}
	return names
}

// distance is how many letters must be put in, left out or replaced to make b
// of a.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// didYouMean is the end of a complaint about an unknown name; list is the
// command that shows all names.
func didYouMean(name string, all []string, list string) string {
	if guesses := near(name, all); len(guesses) > 0 {
		return "did you mean " + strings.Join(guesses, ", ") + "? '" + list + "' lists all"
	}
	return "'" + list + "' lists all"
}
