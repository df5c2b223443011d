//go:build race

package agent

// equal compares memory that somebody may be writing to, without the race detector's
// knowledge, which bytes.Equal would see to.
//
//go:norace
func equal(a, b []byte) bool {
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}
