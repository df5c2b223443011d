package scenarios

import "strings"

// suggestion is the end of a complaint about an unknown word: the one that was
// probably meant, or all there are.
func suggestion(word string, known []string) string {
	best, least := "", 1+len(word)/3
	for _, k := range known {
		if d := distance(strings.ToLower(word), k); d <= least && (best == "" || d < least) {
			best, least = k, d
		}
	}
	if best != "" {
		return "; did you mean " + best + "?"
	}
	return "; there are " + strings.Join(known, ", ")
}

// distance is how many letters must be put in, left out, replaced or swapped
// with their neighbour to make b of a.
func distance(a, b string) int {
	if len(a) > 2*len(b)+8 {
		return len(a)
	}
	before, row, next := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		next[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			next[j+1] = min(row[j]+cost, row[j+1]+1, next[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				next[j+1] = min(next[j+1], before[j-1]+1)
			}
		}
		before, row, next = row, next, before
	}
	return row[len(b)]
}
