package traffic

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/bits"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// Histogram counts durations, as an HdrHistogram of three significant digits does. Short durations
// have a bucket each, and every further power of two is divided into rowLen buckets: quantiles are
// accurate to 0.1 %. The rows of buckets are allocated when they are needed.
type Histogram struct {
	rows          [1 + 64 - exactBits][]uint32 // the first has exactLen buckets, the others rowLen
	n             int
	min, max, sum time.Duration
	squares       float64 // the sum of the squares, in ns²
}

const (
	exactBits = 11
	exactLen  = 1 << exactBits // durations below have a bucket each
	rowLen    = exactLen / 2   // buckets of each further power of two
)

// bucketOf returns the row of a duration and the bucket in it. Durations below exactLen ns have a
// bucket each; longer ones have rowLen buckets for each power of two, by their leading exactBits bits.
func bucketOf(d time.Duration) (row, bucket int) {
	x := uint64(max(d, 0))
	if x < exactLen {
		return 0, int(x)
	}
	shift := bits.Len64(x) - exactBits // leaves exactBits leading bits: rowLen to exactLen-1
	return shift, int(x>>shift) - rowLen
}

// bucketTop returns the longest duration that bucketOf maps to a bucket.
func bucketTop(row, bucket int) time.Duration {
	if row == 0 {
		return time.Duration(bucket)
	}
	return time.Duration(uint64(bucket+rowLen+1)<<row - 1)
}

// Add counts a duration.
func (h *Histogram) Add(d time.Duration) {
	h.sum += d
	h.squares += float64(d) * float64(d)
	h.add(d, 1)
}

// add counts a duration n times, except in the sums.
func (h *Histogram) add(d time.Duration, n int) {
	if h.n == 0 || d < h.min {
		h.min = d
	}
	h.max = max(h.max, d)
	h.n += n
	row, bucket := bucketOf(d)
	if h.rows[row] == nil {
		h.rows[row] = make([]uint32, rowLen)
		if row == 0 {
			h.rows[row] = make([]uint32, exactLen)
		}
	}
	h.rows[row][bucket] += uint32(n)
}

// Merge adds the durations of another histogram.
func (h *Histogram) Merge(o *Histogram) {
	if o.n == 0 {
		return
	}
	low, high := o.min, o.max
	if h.n > 0 {
		low, high = min(low, h.min), max(high, h.max)
	}
	for b := range o.buckets {
		h.add(b.top, b.count)
	}
	h.min, h.max, h.sum, h.squares = low, high, h.sum+o.sum, h.squares+o.squares
}

// Count returns the number of durations.
func (h *Histogram) Count() int { return h.n }

// Min returns the shortest duration; 0 without durations.
func (h *Histogram) Min() time.Duration { return h.min }

// Max returns the longest duration; 0 without durations.
func (h *Histogram) Max() time.Duration { return h.max }

// Mean returns the mean; 0 without durations.
func (h *Histogram) Mean() time.Duration {
	return time.Duration(math.Round(float64(h.sum) / float64(max(h.n, 1))))
}

// StdDev returns the standard deviation; 0 without durations.
func (h *Histogram) StdDev() time.Duration {
	n := float64(max(h.n, 1))
	mean := float64(h.sum) / n
	return time.Duration(math.Round(math.Sqrt(max(0, h.squares/n-mean*mean))))
}

// bucket is a bucket that is not empty: its longest duration, and the durations in it.
type bucket struct {
	top   time.Duration
	count int
}

// buckets calls yield for each bucket that is not empty, the shortest durations first.
func (h *Histogram) buckets(yield func(bucket) bool) {
	for row, counts := range h.rows {
		for i, c := range counts {
			if c > 0 && !yield(bucket{min(max(bucketTop(row, i), h.min), h.max), int(c)}) {
				return
			}
		}
	}
}

// Quantile returns a duration that at least the given percentage of all durations does not exceed:
// the longest of a bucket.
func (h *Histogram) Quantile(percent float64) time.Duration {
	rank, seen := int(math.Ceil(float64(h.n)*percent/100-1e-9)), 0 // 1e-9 is more than the error of the product
	for b := range h.buckets {
		if seen += b.count; seen >= rank {
			return b.top
		}
	}
	return h.max
}

// histogramJSON is the JSON of a Histogram. Times are in nanoseconds.
type histogramJSON struct {
	Min     time.Duration `json:"min"`
	Max     time.Duration `json:"max"`
	Sum     time.Duration `json:"sum"`
	Squares float64       `json:"sum_of_squares"`
	// Counts are pairs of the longest duration of a bucket, and the number of durations in it.
	Counts [][2]int64 `json:"counts"`
}

// MarshalJSON implements json.Marshaler.
func (h *Histogram) MarshalJSON() ([]byte, error) {
	j := histogramJSON{Min: h.min, Max: h.max, Sum: h.sum, Squares: h.squares}
	for b := range h.buckets {
		j.Counts = append(j.Counts, [2]int64{int64(b.top), int64(b.count)})
	}
	return json.Marshal(j)
}

// UnmarshalJSON implements json.Unmarshaler. It rebuilds the buckets from their durations and
// counts.
func (h *Histogram) UnmarshalJSON(text []byte) error {
	var j histogramJSON
	if err := json.Unmarshal(text, &j); err != nil {
		return err
	}
	*h = Histogram{sum: j.Sum, squares: j.Squares}
	for _, c := range j.Counts {
		if c[0] < 0 || c[1] < 1 || c[1] > math.MaxUint32 {
			return fmt.Errorf("a histogram counts %d ns %d times", c[0], c[1])
		}
		h.add(time.Duration(c[0]), int(c[1]))
	}
	h.min, h.max = j.Min, j.Max // a bucket has only its longest duration
	return nil
}

// WritePercentiles writes the distribution in microseconds, in the text format of HdrHistogram that
// its plotter reads (.hgrm).
func (h *Histogram) WritePercentiles(to io.Writer) error {
	w := bufio.NewWriter(to)
	micros := func(d time.Duration) float64 { return float64(d) / 1e3 }
	fmt.Fprintf(w, "%12s %14s %10s %14s\n\n", "Value", "Percentile", "TotalCount", "1/(1-Percentile)")
	seen := 0
	for b := range h.buckets {
		seen += b.count
		share := float64(seen) / float64(h.n)
		fmt.Fprintf(w, "%12.3f %14.12f %10d", micros(b.top), share, seen)
		if seen < h.n {
			fmt.Fprintf(w, " %14.2f", 1/(1-share))
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintf(w, "#[Mean    = %12.3f, StdDeviation   = %12.3f]\n", micros(h.Mean()), micros(h.StdDev()))
	fmt.Fprintf(w, "#[Max     = %12.3f, Total count    = %12d]\n", micros(h.max), h.n)
	return w.Flush()
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
	return &Latency{Count: h.n, Min: h.min, P50: h.Quantile(50), P99: h.Quantile(99), Max: h.max, Sum: h.sum}
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
