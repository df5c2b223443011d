package ranks

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/mpi"
)

// recorded returns the statistics of ranks, as they report them, with the arrival times of their calls of an
// alltoall of 6 bytes in a communicator of all, and of the last two ranks in a barrier of their own.
func recorded(t *testing.T, at [][]time.Duration) []Values {
	t.Helper()
	var reports []json.RawMessage
	for rank, times := range at {
		all := mpi.CommArrivals{Size: len(at)}
		for _, d := range times {
			all.Calls = append(all.Calls, mpi.CollectiveLog{Op: "alltoall", Bytes: 6, At: d})
		}
		s := mpi.Stats{Arrivals: &mpi.Arrivals{Comms: []mpi.CommArrivals{all}}}
		if rank == 0 {
			s.Arrivals.Messages = []time.Duration{100, 100, 100, 200} // of 1, 2, 4 and 8 bytes
		}
		if pair := len(at) - 2; rank >= pair {
			s.Arrivals.Comms = append(s.Arrivals.Comms, mpi.CommArrivals{
				Context: 4, First: pair, Size: 2, Calls: []mpi.CollectiveLog{{Op: "barrier", At: time.Duration(1000 * rank)}},
			})
		}
		text := must.Get(json.Marshal(s))(t)
		reports = append(reports, text)
	}
	return must.Get(ParseStats(append(reports, nil)))(t)
}

// The imbalance is that of calls of all ranks of a communicator, relative to a message of the same size. The last
// call of rank 3 has no counterpart.
func TestImbalanceOfArrivals(t *testing.T) {
	stats := recorded(t, [][]time.Duration{{0, 5000}, {100, 5000}, {200, 5000}, {900, 5600, 9000}})
	all := must.Get(TakeArrivals(stats))(t)
	want := []Arrivals{
		{Op: "alltoall", Calls: 2, Bytes: 6, Average: (300 + 225) / 2, Worst: (900 + 600) / 2, AverageFactor: 1.75, WorstFactor: 5},
		{Op: "barrier", Calls: 1, Average: 500, Worst: 1000, AverageFactor: 5, WorstFactor: 10},
	}
	for i := range all {
		for _, f := range []*float64{&all[i].AverageFactor, &all[i].WorstFactor} {
			*f = float64(int(*f*1e6+0.5)) / 1e6
		}
	}
	if !slices.Equal(all, want) {
		t.Errorf("%+v, want %+v", all, want)
	}
	if again := must.Get(TakeArrivals(stats))(t); len(again) > 0 || stats[0][arrivalsKey] != nil {
		t.Errorf("the records remain: %+v", again)
	}
	var b strings.Builder
	must.Do(t, WriteArrivals(&b, all))
	if got := strings.Join(strings.Fields(b.String()), " "); !strings.HasSuffix(got, "alltoall 2 6 262 ns 1.75 750 ns 5 barrier 1 0 500 ns 5 1 µs 10") {
		t.Error(got)
	}
}

func TestMessageTime(t *testing.T) {
	messages := []time.Duration{100, 120, 140, 240}
	for n, want := range map[int]time.Duration{0: 100, 1: 100, 2: 120, 3: 130, 4: 140, 6: 190, 8: 240, 80: 2400} {
		if got := messageTime(messages, n); got != want {
			t.Errorf("a message of %d bytes takes %d, want %d", n, got, want)
		}
	}
}
