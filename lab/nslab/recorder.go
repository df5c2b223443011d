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

// recorder keeps the samples and marks of the ranks. It is safe for concurrent use.
type recorder struct {
	plan       *lab.Plan
	onProgress func(lab.Progress)

	mu           sync.Mutex
	ranks        []record
	ready        int // ranks that wait for the start command
	ended        int
	lastProgress time.Time
	epoch        time.Time     // time 0 of the scenario; zero until all ranks are ready
	allReady     chan struct{} // closed when all ranks are ready
}

// record has the samples and marks of one rank.
type record struct {
	samples []workload.Sample
	marks   []report.Mark
}

// maxRecords bounds the marks, and the samples, of one rank.
const maxRecords = 100_000

// progressInterval is the minimum interval between progress reports.
const progressInterval = 100 * time.Millisecond

// newRecorder returns a recorder that calls onProgress, unless it is nil, about ten times per
// second.
func newRecorder(plan *lab.Plan, onProgress func(lab.Progress)) *recorder {
	return &recorder{plan: plan, onProgress: onProgress, ranks: make([]record, plan.Scenario.RankCount()), allReady: make(chan struct{})}
}

// handleEvent records an event of the launcher, and reports progress.
func (r *recorder) handleEvent(e launch.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch e.Kind {
	case launch.Marked:
		r.handleMark(e)
	case launch.Sampled:
		var s workload.Sample
		if k := &r.ranks[e.Rank]; json.Unmarshal(e.Sample, &s) == nil && len(k.samples) < maxRecords {
			k.samples = append(k.samples, s)
		}
	case launch.Ended:
		r.ended++
	default:
		return
	}
	r.reportProgress(e.At)
}

// handleMark records a mark of a rank, and closes allReady when every rank is ready.
func (r *recorder) handleMark(e launch.Event) {
	if e.Text == readyMark && r.epoch.IsZero() {
		if r.ready++; r.ready == len(r.ranks) {
			close(r.allReady)
		}
		return
	}
	if k := &r.ranks[e.Rank]; len(k.marks) < maxRecords {
		k.marks = append(k.marks, report.Mark{At: r.since(e.At), What: e.Text})
	}
}

// begin sets time 0 of the scenario.
func (r *recorder) begin(epoch time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.epoch = epoch
}

// since returns the scenario's time at t; 0 before the start.
func (r *recorder) since(t time.Time) time.Duration {
	if r.epoch.IsZero() {
		return 0
	}
	return t.Sub(r.epoch)
}

// now returns the current time of the scenario.
func (r *recorder) now() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.since(time.Now())
}

// reportProgress calls onProgress with the sums of the last samples of all ranks, at most once
// per progressInterval.
func (r *recorder) reportProgress(at time.Time) {
	if r.onProgress == nil || at.Sub(r.lastProgress) < progressInterval {
		return
	}
	r.lastProgress = at
	p := lab.Progress{At: r.since(at), RanksEnded: r.ended, RanksTotal: len(r.ranks)}
	for i := range r.ranks {
		if n := len(r.ranks[i].samples); n > 0 {
			p.Messages += r.ranks[i].samples[n-1].Messages
			p.Bytes += r.ranks[i].samples[n-1].Bytes
		}
	}
	r.onProgress(p)
}
