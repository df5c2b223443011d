package nslab

import (
	"encoding/json"
	"sync"
	"time"

	"github.com/fabrictest/fabrictest/lab"
	"github.com/fabrictest/fabrictest/launch"
	"github.com/fabrictest/fabrictest/report"
	"github.com/fabrictest/fabrictest/scenarios/workload"
)

// recorder keeps what ranks tell while they run. The launcher and the goroutine
// that breaks things share it.
type recorder struct {
	plan *lab.Plan
	tell func(lab.Progress)

	mu    sync.Mutex
	ranks []record
	ready int // ranks that wait for the order to begin
	ended int
	told  time.Time
	epoch time.Time     // the scenario's time 0; zero until all are ready
	all   chan struct{} // closed when all are ready
}

// record is what one rank has told.
type record struct {
	samples []workload.Sample
	marks   []report.Mark
}

// maxTold bounds what is kept of one rank's marks and samples.
const maxTold = 100_000

// tellEvery is how often progress is told at most.
const tellEvery = 100 * time.Millisecond

func newRecorder(plan *lab.Plan, tell func(lab.Progress)) *recorder {
	return &recorder{plan: plan, tell: tell, ranks: make([]record, plan.Scenario.RankCount()), all: make(chan struct{})}
}

// event takes note of what happened to a rank.
func (r *recorder) event(e launch.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch e.Kind {
	case launch.Marked:
		r.mark(e)
	case launch.Sampled:
		var s workload.Sample
		if k := &r.ranks[e.Rank]; json.Unmarshal(e.Sample, &s) == nil && len(k.samples) < maxTold {
			k.samples = append(k.samples, s)
		}
	case launch.Ended:
		r.ended++
	default:
		return
	}
	r.progress(e.At)
}

func (r *recorder) mark(e launch.Event) {
	if e.Text == readyMark && r.epoch.IsZero() {
		if r.ready++; r.ready == len(r.ranks) {
			close(r.all)
		}
		return
	}
	if k := &r.ranks[e.Rank]; len(k.marks) < maxTold {
		k.marks = append(k.marks, report.Mark{At: r.since(e.At), What: e.Text})
	}
}

// begin sets the scenario's time 0.
func (r *recorder) begin(epoch time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.epoch = epoch
}

// since is the scenario's time at t.
func (r *recorder) since(t time.Time) time.Duration {
	if r.epoch.IsZero() {
		return 0
	}
	return t.Sub(r.epoch)
}

// now is the scenario's time.
func (r *recorder) now() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.since(time.Now())
}

func (r *recorder) progress(at time.Time) {
	if r.tell == nil || at.Sub(r.told) < tellEvery {
		return
	}
	r.told = at
	p := lab.Progress{At: r.since(at), Ranks: r.ended, Of: len(r.ranks)}
	for i := range r.ranks {
		if n := len(r.ranks[i].samples); n > 0 {
			p.Messages += r.ranks[i].samples[n-1].Messages
			p.Bytes += r.ranks[i].samples[n-1].Bytes
		}
	}
	r.tell(p)
}
