package traffic

import (
	"math/bits"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// Histogram counts durations. Short ones have a bucket each, and every further power of two
// is divided into rowLen buckets: quantiles are accurate to 1.6 %.
type Histogram struct {
	counts        [exactLen + (64-exactBits)*rowLen]uint32
	n             int
	min, max, sum time.Duration
}

const (
	exactBits = 7
	exactLen  = 1 << exactBits // durations below have a bucket each
	rowLen    = exactLen / 2   // buckets of each further power of two
)

// bucketOf returns the index of a duration's bucket. Durations below exactLen ns have a bucket
// each; longer ones have rowLen buckets for each power of two, by their leading exactBits bits.
func bucketOf(d time.Duration) int {
	x := uint64(max(d, 0))
	if x < exactLen {
		return int(x)
	}
	shift := bits.Len64(x) - exactBits                          // leaves exactBits leading bits
	return exactLen + (shift-1)*rowLen + int(x>>shift) - rowLen // x>>shift is rowLen to exactLen-1
}

// bucketTop returns the longest duration that bucketOf maps to i.
func bucketTop(i int) time.Duration {
	if i < exactLen {
		return time.Duration(i)
	}
	shift, leadingBits := (i-exactLen)/rowLen+1, (i-exactLen)%rowLen+rowLen
	return time.Duration(uint64(leadingBits+1)<<shift - 1)
}

// Add counts a duration.
func (h *Histogram) Add(d time.Duration) {
	if h.n == 0 || d < h.min {
		h.min = d
	}
	h.max = max(h.max, d)
	h.sum += d
	h.n++
	h.counts[bucketOf(d)]++
}

// quantile returns a duration that at least the given percentage of all durations does not exceed:
// the longest of a bucket.
func (h *Histogram) quantile(percent int) time.Duration {
	rank := (h.n*percent + 99) / 100 // rounded up
	seen := 0
	for i, c := range h.counts {
		if seen += int(c); c > 0 && seen >= rank {
			return min(max(bucketTop(i), h.min), h.max)
		}
	}
	return h.max
}

// Latency summarises durations.
type Latency struct {
	Count int           `json:"count"`
	Min   time.Duration `json:"min"`
	P50   time.Duration `json:"p50"`
	P99   time.Duration `json:"p99"`
	Max   time.Duration `json:"max"`
	Sum   time.Duration `json:"sum"`
}

// Summary summarises the durations; nil if none was added.
func (h *Histogram) Summary() *Latency {
	if h.n == 0 {
		return nil
	}
	return &Latency{Count: h.n, Min: h.min, P50: h.quantile(50), P99: h.quantile(99), Max: h.max, Sum: h.sum}
}

// CountersSince returns by how much each device counter has grown between two readings.
func CountersSince(before, now []verbs.Counter) []verbs.Counter {
	old := make(map[string]uint64, len(before))
	for _, c := range before {
		old[c.Name] = c.Value
	}
	since := make([]verbs.Counter, len(now))
	for i, c := range now {
		since[i] = verbs.Counter{Name: c.Name, Value: c.Value - old[c.Name]}
	}
	return since
}
