// Package near guesses which word was meant by one that is not known. It is for
// complaints, and refuses to guess where that would be no help.
package near

import (
	"cmp"
	"slices"
	"strings"
)

// most is how many words are worth suggesting.
const most = 5

// Words returns those of known that whoever wrote word may have meant, the
// likeliest first: those that contain it, and those that one mistake in three
// letters makes of it. Capitals do not count.
func Words(word string, known []string) []string {
	type guess struct {
		word  string
		score int
	}
	lower := strings.ToLower(word)
	var guesses []guess
	for _, k := range known {
		l := strings.ToLower(k)
		if len(lower) >= 3 && strings.Contains(l, lower) {
			guesses = append(guesses, guess{k, 0})
		} else if d := Distance(lower, l); d <= len(lower)/3 {
			guesses = append(guesses, guess{k, d})
		}
	}
	slices.SortStableFunc(guesses, func(a, b guess) int { return cmp.Compare(a.score, b.score) })
	words := make([]string, 0, most)
	for _, g := range guesses[:min(len(guesses), most)] {
		words = append(words, g.word)
	}
	return words
}

// Distance is how many letters must be put in, left out, replaced or swapped with
// their neighbour to make b of a. For words of very different lengths it is a
// number beyond all interest.
func Distance(a, b string) int {
	if d := len(a) - len(b); d > len(b)+8 || -d > len(a)+8 {
		return max(len(a), len(b)) // a word may be as long as whoever wrote it liked
	}
	before, row, next := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		next[0] = i + 1
		for j := range len(b) {
			replaced := row[j]
			if a[i] != b[j] {
				replaced++
			}
			next[j+1] = min(replaced, row[j+1]+1, next[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				next[j+1] = min(next[j+1], before[j-1]+1)
			}
		}
		before, row, next = row, next, before
	}
	return row[len(b)]
}
