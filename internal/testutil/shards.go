package testutil

import (
	"fmt"
	"testing"
)

// Shards runs a test for the numbers from 0 to n-1, in several parallel tests. A shard ends
// at its first failure.
func Shards(t *testing.T, n int, test func(t *testing.T, i int)) {
	const shards = 8
	t.Run("shards", func(t *testing.T) {
		for shard := range shards {
			t.Run(fmt.Sprint(shard), func(t *testing.T) {
				t.Parallel()
				for i := shard; i < n && !t.Failed(); i += shards {
					test(t, i)
				}
			})
		}
	})
}
