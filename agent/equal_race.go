//go:build race

package agent

// equal compares memory that may be written concurrently, without the race detector, which
// would check bytes.Equal.
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
