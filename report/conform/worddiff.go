package conform

import "strings"

// word is a word of a text; Differs reports that the other text does not have it.
type word struct {
	Text    string
	Differs bool
}

// maxWords limits the compared texts: the table has a cell for each pair of words.
const maxWords = 300

// compareWords marks the words in which two texts differ. It does not compare texts with
// few common words.
func compareWords(want, got string) (w, g []word) {
	a, b := strings.Fields(want), strings.Fields(got)
	if len(a) > maxWords || len(b) > maxWords {
		return []word{{want, false}}, []word{{got, false}}
	}
	// same[i][j] is the length of the longest common subsequence of a[i:] and b[j:].
	same := make([][]int, len(a)+1)
	for i := range same {
		same[i] = make([]int, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if same[i][j] = max(same[i+1][j], same[i][j+1]); a[i] == b[j] {
				same[i][j] = same[i+1][j+1] + 1
			}
		}
	}
	const least = 3 // one word in three must be common
	if least*same[0][0] < min(len(a), len(b)) {
		return []word{{want, false}}, []word{{got, false}}
	}
	i, j := 0, 0
	for i < len(a) || j < len(b) {
		switch {
		case i < len(a) && j < len(b) && a[i] == b[j]:
			w, g = append(w, word{a[i], false}), append(g, word{b[j], false})
			i, j = i+1, j+1
		case j == len(b) || i < len(a) && same[i+1][j] >= same[i][j+1]:
			w = append(w, word{a[i], true})
			i++
		default:
			g = append(g, word{b[j], true})
			j++
		}
	}
	return w, g
}
