package mpihost

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/link/pcaplink"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/explore"
	"github.com/fabrictest/fabrictest/mpi"
)

// ExploreJob is the part of a Job that explores its simulation, or repeats one run of it.
type ExploreJob struct {
	Strategy   string        `json:"strategy,omitempty"`
	Runs       int           `json:"runs,omitempty"`
	Time       time.Duration `json:"time,omitempty"`
	Depth      int           `json:"depth,omitempty"`
	Parallel   int           `json:"parallel,omitempty"`
	ShrinkRuns int           `json:"shrink_runs,omitempty"`
	// Reorder and Faults are those of sim.Config, Spray that of sim.LinkConfig.
	Reorder time.Duration `json:"reorder,omitempty"`
	Faults  int           `json:"faults,omitempty"`
	Spray   int           `json:"spray,omitempty"`
	Misuse  bool          `json:"misuse,omitempty"`
	Races   bool          `json:"races,omitempty"`
	// Placement is that of sim.PortConfig.
	Placement sim.Placement `json:"placement,omitempty"`
	// Robust compares the results with those under the strong model; see Exploration.Robust.
	Robust bool `json:"robust,omitempty"`
	// Output makes the output of the ranks a part of these results.
	Output bool `json:"output,omitempty"`
	// Replay is the path of the run to repeat, as explore.Path.Changes has it; nil to explore.
	Replay *string `json:"replay,omitempty"`
	// Capture is the file for the packets of the repeated run. Calls asks for the calls of its ranks.
	Capture string `json:"capture,omitempty"`
	Calls   bool   `json:"calls,omitempty"`
}

// ReportProgress and ReportExplored are the ranks in Reports of an exploration: its progress, an
// explore.Progress, and its result, an Explored.
const (
	ReportProgress = -2
	ReportExplored = -3
)

// Explored is the result of an exploration, or of a repeated run.
type Explored struct {
	explore.Counts
	Elapsed  time.Duration
	Finished bool
	Failure  *ExploredFailure `json:",omitempty"`
	Robust   *Robustness      `json:",omitempty"`
	// Marks are the times of the choices of a repeated run that are not 0, Calls those that its ranks
	// began, and Ends how the ranks ended, by rank.
	Marks []Mark      `json:",omitempty"`
	Calls []*mpi.Call `json:",omitempty"`
	Ends  []RankEnd   `json:",omitempty"`
}

// RankEnd is the end of a rank in a repeated run.
type RankEnd struct {
	Host int
	At   time.Duration // negative if it has not ended
	Err  string        // of its program; empty without an error
}

// Mark is a choice and its virtual time.
type Mark struct {
	At     time.Duration
	Step   int
	Choice explore.Choice
	// Picked and First describe the alternatives that were picked, and that the default is; empty if
	// that is not known. A fault has no First.
	Picked, First string `json:",omitempty"`
}

// ExploredFailure is an explore.Failure as text.
type ExploredFailure struct {
	Error    string
	Changes  string // the path
	Choices  int    // of the path
	Diverged bool   // the repeated run had other choices than the path
	Findings []explore.Finding
}

// explore explores the program of the job, or repeats a run, and reports the result. A signal that
// ends a program ends the search, whose result so far is reported.
func (p *Process) explore(o mpi.Options, rank rankFunc) error {
	j := p.job.Explore
	f, err := p.job.fabric()
	if err != nil {
		return err
	}
	f.Reorder, f.Faults, f.Link.Spray = j.Reorder, j.Faults, j.Spray
	f.Placement = j.Placement
	x := &Exploration{
		Fabric: f, Options: o, Misuse: j.Misuse, Races: j.Races, ShrinkRuns: j.ShrinkRuns,
		Explore: explore.Options{
			Strategy: j.Strategy, Seed: f.Seed, MaxRuns: j.Runs, MaxTime: j.Time, Depth: j.Depth, Parallel: j.Parallel,
			Progress: func(at explore.Progress) { p.reportExplored(ReportProgress, at) },
		},
	}
	if j.Output {
		output, err := captureOutput()
		if err != nil {
			return err
		}
		x.output = output
	}
	if j.Replay != nil {
		err = p.replay(x, rank)
	} else {
		err = p.search(x, rank)
	}
	if p.file != nil {
		err = errors.Join(err, p.file.Close())
	}
	return errors.Join(err, p.reportErr)
}

// search explores, and reports the result.
func (p *Process) search(x *Exploration, rank rankFunc) (err error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var r *explore.Report
	var robust *Robustness
	if p.job.Explore.Robust {
		robust, r, err = x.robust(ctx, rank)
	} else {
		r, err = x.run(ctx, rank)
	}
	if err == nil {
		p.reportExplored(ReportExplored, Explored{Counts: r.Counts, Elapsed: r.Elapsed, Finished: r.Finished, Failure: failureText(r.Failure), Robust: robust})
	}
	return err
}

func failureText(f *explore.Failure) *ExploredFailure {
	if f == nil {
		return nil
	}
	return &ExploredFailure{Error: f.Err.Error(), Changes: f.Path.Changes(), Choices: len(f.Path), Findings: f.Findings}
}

// reportExplored writes a Report for the launcher.
func (p *Process) reportExplored(kind int, v any) {
	text, err := json.Marshal(v)
	if err == nil && p.file != nil {
		err = json.NewEncoder(p.file).Encode(Report{Rank: kind, Text: text})
	}
	if err != nil && p.reportErr == nil {
		p.reportErr = fmt.Errorf("report of the exploration: %w", err)
	}
}

// replay repeats the run of the job's path.
func (p *Process) replay(x *Exploration, rank rankFunc) error {
	path, err := explore.ParseChanges(*p.job.Explore.Replay)
	if err != nil {
		return err
	}
	var run *World
	result := Explored{Counts: explore.Counts{Runs: 1}}
	if p.job.Explore.Calls {
		x.Options.OnCall = func(c *mpi.Call) { result.Calls = append(result.Calls, c) }
	}
	var captured *packetCapture
	x.Fabric.Script = func(w *World) {
		run = w
		if name := p.job.Explore.Capture; name != "" {
			captured = newPacketCapture(name, w)
		}
	}
	watch := &watchedChooser{each: func(step int, c explore.Choice) {
		if c.Picked > 0 && run != nil {
			result.Marks = append(result.Marks, Mark{At: run.Now(), Step: step, Choice: c})
		}
	}, name: func(picked, first string) {
		if n := len(result.Marks); n > 0 {
			result.Marks[n-1].Picked, result.Marks[n-1].First = picked, first
		}
	}}
	failure := x.replayWith(path, watch, func(c explore.Chooser) error {
		if p.job.Explore.Robust {
			return x.onceResult(c, rank, func(string) bool { return true })
		}
		return x.once(c, rank)
	})
	if failure != nil {
		_, diverged := errors.AsType[*explore.DivergedError](failure)
		result.Failure = failureText(&explore.Failure{Err: failure, Path: path})
		result.Failure.Diverged = diverged
	}
	if run != nil {
		result.Ends = run.ends()
	}
	p.reportExplored(ReportExplored, result)
	return captured.close()
}

// ends returns how the ranks have ended.
func (w *World) ends() []RankEnd {
	all := make([]RankEnd, len(w.ranks))
	for i, r := range w.ranks {
		all[i] = RankEnd{Host: w.nodes[i], At: -1}
		if r.ended {
			all[i].At = w.out.Ranks[i].Ended
		}
		if err := w.out.Ranks[i].Err; err != nil {
			all[i].Err = err.Error()
		}
	}
	return all
}

// replayWith repeats a run with once, while watch watches its choices.
func (x *Exploration) replayWith(path explore.Path, watch *watchedChooser, once func(explore.Chooser) error) error {
	if err := x.setDefaults(); err != nil {
		return err
	}
	return explore.ReplayRun(path, func(c explore.Chooser) error {
		watch.Chooser = c
		return once(watch)
	})
}

// watchedChooser calls each, unless it is nil, after every choice, and name after those that the simulation
// describes.
type watchedChooser struct {
	explore.Chooser
	step int
	each func(step int, c explore.Choice)
	name func(picked, first string)
}

// Choose implements explore.Chooser.
func (c *watchedChooser) Choose(kind string, n int) int {
	i := c.Chooser.Choose(kind, n)
	if c.each != nil {
		c.each(c.step, explore.Choice{Kind: kind, Picked: i, Of: n})
	}
	c.step++
	return i
}

// NameChoice implements sim.ChoiceNamer.
func (c *watchedChooser) NameChoice(picked, first string) {
	if c.name != nil {
		c.name(picked, first)
	}
}

// packetCapture writes the packets of a run to a file, as ports send them and as they arrive.
type packetCapture struct {
	file  *os.File
	to    *pcaplink.Capture
	ports map[*sim.Port]*pcaplink.Interface
	err   error
}

func newPacketCapture(name string, w *World) *packetCapture {
	c := &packetCapture{ports: map[*sim.Port]*pcaplink.Interface{}}
	if c.file, c.err = os.Create(name); c.err != nil {
		return c
	}
	c.to = pcaplink.NewCapture(c.file, pcaplink.Options{})
	for i := range w.hosts {
		for _, p := range w.hosts[i].ports {
			c.ports[p] = c.to.AddInterface(p.Name())
			p.Net().SetTap(func(now mono.Time, at *sim.Port, dir sim.Direction, d *link.Datagram) {
				direction := pcaplink.Outbound
				if dir == sim.In {
					direction = pcaplink.Inbound
				}
				c.ports[at].Write(now, direction, d)
			})
		}
	}
	return c
}

// close completes the file. A nil capture has none.
func (c *packetCapture) close() error {
	if c == nil || c.err != nil {
		if c != nil {
			return c.err
		}
		return nil
	}
	return errors.Join(c.to.Close(), c.file.Close())
}
