package explore

import (
	"fmt"
	"testing"
)

// The sums are those of the reference implementation of MurmurHash3_x64_128 with seed 0.
func TestHash(t *testing.T) {
	for text, want := range map[string]string{
		"":             "00000000000000000000000000000000",
		"hello":        "cbd8a7b341bd9b025b1e906a48ae1d19",
		"hello, world": "342fac623a5ebc8e4cdcbc079642414d",
		"The quick brown fox jumps over the lazy dog.": "cd99481f9ee902c9695da1a38987b6e7",
	} {
		if got := fmt.Sprintf("%x", Hash([]byte(text))); got != want {
			t.Errorf("Hash(%q) = %s, want %s", text, got, want)
		}
	}
}
