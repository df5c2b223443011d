package verbs_test

import (
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

func TestLinearCost(t *testing.T) {
	for _, c := range []struct {
		cost  verbs.LinearCost
		bytes int
		want  time.Duration
	}{
		{verbs.LinearCost{Base: 100}, 5000, 100},
		{verbs.LinearCost{Base: 100, PicosecondsPerByte: 500}, 3, 101}, // rounded down
		{verbs.LinearCost{PicosecondsPerByte: 1000, Granularity: 4096}, 1, 4096},
		{verbs.LinearCost{PicosecondsPerByte: 1000, Granularity: 4096}, 4096, 4096},
		{verbs.LinearCost{PicosecondsPerByte: 1000, Granularity: 4096}, 4097, 8192},
		{verbs.LinearCost{PicosecondsPerByte: 2000, CachedBytes: 100, CachedPicosecondsPerByte: 1000}, 100, 100},
		{verbs.LinearCost{PicosecondsPerByte: 2000, CachedBytes: 100, CachedPicosecondsPerByte: 1000}, 101, 102},
	} {
		if got := c.cost.Of(c.bytes); got != c.want {
			t.Errorf("%+v: %d bytes take %v, want %v", c.cost, c.bytes, got, c.want)
		}
	}
}
