package traffic

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
)

func TestContentDistinguishesMessages(t *testing.T) {
	pattern := NewPattern(1, 10_000)
	a, b := Content{pattern, Derive(1, 0, 1)}, Content{pattern, Derive(1, 1, 0)}
	for _, n := range []int{0, 1, 3, 7, 8, 9, 255, 256, 257, 264, 5000, 10_000} {
		buf := make([]byte, n)
		a.Fill(buf, 17)
		if !a.Matches(buf, 17) {
			t.Fatalf("%d bytes: a message does not match itself", n)
		}
		if n == 0 {
			continue
		}
		if a.Matches(buf, 18) || n >= StampLen && b.Matches(buf, 17) {
			t.Errorf("%d bytes: a message matches another", n)
		}
		if got, ok := a.ParseSeq(buf, 0, 100); ok != (n >= StampLen) || ok && got != 17 {
			t.Errorf("%d bytes: number %d, %v", n, got, ok)
		}
		for i := range buf {
			buf[i] ^= 0x80
			if a.Matches(buf, 17) {
				t.Fatalf("%d bytes: a corrupted byte %d is not detected", n, i)
			}
			buf[i] ^= 0x80
		}
	}
	// A packet of another message at the place of this one.
	one, two := make([]byte, 5000), make([]byte, 5000)
	a.Fill(one, 1)
	a.Fill(two, 2)
	copy(one[1024:2048], two[1024:2048])
	if a.Matches(one, 1) {
		t.Error("a packet of another message is not detected")
	}
	t.Log(a.Describe(one, 1, 100))
}

func TestContentCheckDoesNotAllocate(t *testing.T) {
	c := Content{NewPattern(1, 4096), 5}
	buf := make([]byte, 4096)
	if n := testing.AllocsPerRun(100, func() {
		c.Fill(buf, 3)
		if !c.Matches(buf, 3) {
			t.Fatal("wrong")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkContent(b *testing.B) {
	for _, n := range []int{64, 4096, 1 << 20} {
		c := Content{NewPattern(1, n), 5}
		buf := make([]byte, n)
		b.Run(fmt.Sprintf("fill/%d", n), func(b *testing.B) {
			b.SetBytes(int64(n))
			for i := range b.N {
				c.Fill(buf, i)
			}
		})
		c.Fill(buf, 3)
		b.Run(fmt.Sprintf("check/%d", n), func(b *testing.B) {
			b.SetBytes(int64(n))
			for range b.N {
				if !c.Matches(buf, 3) {
					b.Fatal("wrong")
				}
			}
		})
	}
}

func TestHistogram(t *testing.T) {
	var h Histogram
	if h.Summary() != nil {
		t.Error("an empty histogram has a summary")
	}
	for d := time.Duration(1); d < 1<<40; d = d*17/16 + 1 {
		row, i := bucketOf(d)
		if top := bucketTop(row, i); d > top || float64(top-d) > 0.001*float64(d) {
			t.Fatalf("%v is in bucket %d of row %d, which ends at %v", d, i, row, top)
		}
	}
	for i := range 1000 {
		h.Add(time.Duration(i+1) * time.Microsecond)
	}
	s := h.Summary()
	near := func(got, want time.Duration) bool { return got >= want && got <= want*1001/1000 }
	if s.Count != 1000 || s.Min != time.Microsecond || s.Max != time.Millisecond || s.Sum != 500500*time.Microsecond ||
		!near(s.P50, 500*time.Microsecond) || !near(s.P99, 990*time.Microsecond) {
		t.Errorf("%+v", s)
	}
	if h.Mean() != 500500*time.Nanosecond || h.StdDev() != 288675*time.Nanosecond || h.Quantile(100) != h.Max() {
		t.Errorf("mean %v, standard deviation %v, 100 %% %v", h.Mean(), h.StdDev(), h.Quantile(100))
	}
	var again Histogram
	must.Do(t, json.Unmarshal(must.Get(json.Marshal(&h))(t), &again))
	if !reflect.DeepEqual(h, again) {
		t.Errorf("after JSON: %+v", again.Summary())
	}
}

func TestHistogramWritesPercentiles(t *testing.T) {
	var h Histogram
	for _, d := range []time.Duration{2000, 1000, 1000, 3000} {
		h.Add(d)
	}
	var text strings.Builder
	must.Do(t, h.WritePercentiles(&text))
	const want = "       Value     Percentile TotalCount 1/(1-Percentile)\n\n" +
		"       1.000 0.500000000000          2           2.00\n" +
		"       2.000 0.750000000000          3           4.00\n" +
		"       3.000 1.000000000000          4\n" +
		"#[Mean    =        1.750, StdDeviation   =        0.829]\n" +
		"#[Max     =        3.000, Total count    =            4]\n"
	if text.String() != want {
		t.Errorf("got\n%swant\n%s", &text, want)
	}
}
