// Package mpirun is the launcher of ranks of the multi-rank runtime: it starts a
// program as one process a rank in the hosts of a fabric in network namespaces, or as
// one process that is all ranks of a simulated world, passes on what they print, and
// tells how they ended.
//
// The program finds what it is to be by package mpihost. The fabric in namespaces is
// made by a process of this program's own, inside an enclosure that takes all of it
// away with it: whoever uses the package must call ProcessMain when the program is
// started with ProcessCommand as its first argument.
package mpirun

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/fabrictest/fabrictest/internal/printable"
	"github.com/fabrictest/fabrictest/lab/mpihost"
	"github.com/fabrictest/fabrictest/launch"
)

// ProcessCommand is what the program is started with to be the fabric.
const ProcessCommand = "mpi-process"

// Run is what to run.
type Run struct {
	mpihost.Job
	// Args are the program, by a path, and its arguments.
	Args []string `json:"args"`
	// Label puts the rank's number before each line, in namespaces.
	Label bool `json:"label,omitempty"`
	// Bind keeps each rank to one processor, in namespaces: to the next of those that
	// there are, over and over.
	Bind bool `json:"bind,omitempty"`
	// KeepGoing lets the other ranks go on when one fails. In a simulated world they
	// always do.
	KeepGoing bool `json:"keep_going,omitempty"`
}

// normal fills in what a run leaves out, and says what makes no sense.
func (r *Run) normal() error {
	r.PerHost, r.Rails = cmp.Or(r.PerHost, 1), cmp.Or(r.Rails, 1)
	if len(r.Args) == 0 {
		return errors.New("no program to run")
	}
	return r.Check()
}

// Result is what came of it.
type Result struct {
	// Code is 0, or the first exit code of a rank that is not, in their order; that of a
	// rank which was ended counts only where no other failed.
	Code int
	// Reports are those of the ranks, by rank; nil for ranks that handed in none.
	Reports []json.RawMessage
}

// readReports reads what ranks hand in until there is no more; begun, whether a
// simulated world has said that it is one.
func readReports(from io.Reader, ranks int) (all []json.RawMessage, begun bool, err error) {
	all = make([]json.RawMessage, ranks)
	for in := json.NewDecoder(from); ; {
		var r mpihost.Report
		switch err := in.Decode(&r); {
		case errors.Is(err, io.EOF):
			return all, begun, nil
		case err != nil:
			return all, begun, fmt.Errorf("reports of ranks: %w", err)
		case r.Rank == mpihost.Begun:
			begun = true
		case r.Rank < 0 || r.Rank >= ranks:
			return all, begun, fmt.Errorf("a report of rank %d, and there are %d ranks", r.Rank, ranks)
		default:
			all[r.Rank] = r.Text
		}
	}
}

// notOurs says of a program that it is none of ranks.
const notOurs = "it never asked which rank it is: it must call mpi.Main, and import lab/mpihost/join"

// verdict is the exit code of ranks that ended like that. How one failed that did not
// tell by its code is said on w.
func verdict(outcomes []launch.Outcome, w io.Writer) (code int) {
	stopped := 0
	for i := range outcomes {
		o := &outcomes[i]
		if o.State.OK() {
			continue
		}
		n := o.ExitCode
		if sig := unix.SignalNum(o.Signal); sig != 0 {
			n = 128 + int(sig)
		} else if n <= 0 {
			n = 1
		}
		if o.State == launch.Stopped {
			stopped = n
			continue
		}
		switch {
		case quiet(o):
		case !o.Joined && o.State == launch.Exited && o.ExitCode == 0:
			fmt.Fprintf(w, "fabrictest: %s ended: %s\n", place(o), notOurs)
		default:
			fmt.Fprintf(w, "fabrictest: %s %s: %s\n", place(o), o.State, printable.Text(o.Error))
		}
		if code == 0 {
			code = n
		}
	}
	if code == 0 {
		code = stopped
	}
	return code
}

// quiet reports whether the process has said itself how it ended: a simulated world
// that exits with a code.
func quiet(o *launch.Outcome) bool { return o.Host == "" && o.State == launch.Exited }

func place(o *launch.Outcome) string {
	if o.Host == "" {
		return "the simulated world"
	}
	return fmt.Sprintf("rank %d on %s", o.Rank, o.Host)
}

// passOn prints what a rank printed where the rank did.
func (r *Run) passOn(e *launch.Event) {
	to := os.Stdout
	if e.Stream == launch.Stderr {
		to = os.Stderr
	}
	label := ""
	if r.Label && e.Host != "" {
		label = fmt.Sprintf("%d: ", e.Rank)
	}
	_, _ = io.WriteString(to, label+printable.Text(e.Text)+"\n") // where output goes to cannot be told where else to complain
}
