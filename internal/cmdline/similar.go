package cmdline

import (
	"cmp"
	"slices"
	"strings"
)

const maxSuggestions = 5

// Similar returns the known words that contain word, and those whose edit distance
// is at most a third of its length, the most similar first. Case is ignored.
func Similar(word string, known []string) []string {
	type candidate struct {
		word     string
		distance int
	}
	lower := strings.ToLower(word)
	var candidates []candidate
	for _, k := range known {
		l := strings.ToLower(k)
		if len(lower) >= 3 && strings.Contains(l, lower) {
			candidates = append(candidates, candidate{k, 0})
		} else if d := EditDistance(lower, l); d <= len(lower)/3 {
			candidates = append(candidates, candidate{k, d})
		}
	}
	slices.SortStableFunc(candidates, func(a, b candidate) int { return cmp.Compare(a.distance, b.distance) })
	words := make([]string, 0, maxSuggestions)
	for _, c := range candidates[:min(len(candidates), maxSuggestions)] {
		words = append(words, c.word)
	}
	return words
}

// EditDistance returns the number of bytes to insert, delete, replace or swap with
// their neighbour to turn a into b (optimal string alignment). If the lengths differ
// widely it returns the longer length without computing the distance.
func EditDistance(a, b string) int {
	if d := len(a) - len(b); d > len(b)+8 || -d > len(a)+8 {
		return max(len(a), len(b))
	}
	prev2, prev, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := range len(a) {
		row[0] = i + 1
		for j := range len(b) {
			replaced := prev[j]
			if a[i] != b[j] {
				replaced++
			}
			row[j+1] = min(replaced, prev[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], prev2[j-1]+1)
			}
		}
		prev2, prev, row = prev, row, prev2
	}
	return prev[len(b)]
}
