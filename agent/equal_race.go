//go:build race

package agent

// equal compares memory of equal length that may be written concurrently. It is not bytes.Equal,
// which the race detector would check in spite of go:norace.
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
