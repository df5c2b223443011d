package main

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/lab/mpihost"
	"github.com/fabrictest/fabrictest/lab/mpihost/mpirun"
	"github.com/fabrictest/fabrictest/mpi"
	"github.com/fabrictest/fabrictest/report/sequence"
)

// newDiagram returns the sequence diagram of a repeated run: its calls and choices, and the packets of
// its capture.
func newDiagram(name string, file *mpirun.ReplayFile, job *mpihost.Job, captured string, r *mpihost.Explored) (*sequence.Diagram, error) {
	d := &sequence.Diagram{
		Program: cli.Join(file.Program), Command: "fabrictest replay " + cli.Quote(name),
		Fabric: job.Provider,
	}
	for i, e := range r.Ends {
		text := strings.TrimPrefix(e.Err, fmt.Sprintf("mpi: rank %d of %d: ", i, len(r.Ends)))
		d.Ranks = append(d.Ranks, sequence.Rank{Host: e.Host, End: e.At, Err: text})
	}
	for _, m := range r.Marks {
		text := fmt.Sprintf("choice %d: %v", m.Step, m.Choice)
		if m.Picked != "" {
			text += ": " + m.Picked
		}
		if m.First != "" {
			text += ", before " + m.First
		}
		d.Choices = append(d.Choices, sequence.Choice{At: m.At, Text: text})
	}
	if r.Failure != nil {
		d.Failure, d.Findings = r.Failure.Error, r.Failure.Findings
	}
	addCalls(d, r)
	var err error
	d.Packets, err = packetsOf(captured)
	return d, err
}

// addCalls adds the calls of the ranks, and the messages between them.
func addCalls(d *sequence.Diagram, r *mpihost.Explored) {
	var lines sourceLines
	sends := map[envelope][]int{}
	receives := map[envelope][]int{}
	for i, c := range r.Calls {
		d.Calls = append(d.Calls, sequence.Call{
			Place: c.Place, Args: c.Args, Begin: c.Begin, End: c.End, Err: c.Err, Source: lines.at(c.File, c.Line),
		})
		for _, s := range c.Sends {
			e := envelope{c.Rank, s.Peer, s.Tag, s.Context}
			sends[e] = append(sends[e], i)
		}
	}
	for _, c := range r.Calls {
		for _, s := range c.Recvs {
			if s.Done < 0 {
				continue
			}
			e := envelope{s.Peer, c.Rank, s.Tag, s.Context}
			receives[e] = append(receives[e], callAt(r, c.Rank, s.Done))
		}
	}
	for e, from := range sends {
		for i, to := range receives[e][:min(len(receives[e]), len(from))] {
			d.Messages = append(d.Messages, sequence.Message{From: from[i], To: to})
		}
	}
}

// envelope identifies messages that are received in the order of their sends.
type envelope struct {
	from, to, tag int
	context       uint32
}

// callAt returns the first call of a rank that has not ended before a time; -1 if there is none.
func callAt(r *mpihost.Explored, rank int, at time.Duration) int {
	return slices.IndexFunc(r.Calls, func(c *mpi.Call) bool { return c.Rank == rank && (c.End >= at || c.End < 0) })
}

// sourceLines reads lines of source files, if they can be read here.
type sourceLines struct{ files map[string][][]byte }

// at returns a line of a file; empty if it cannot be read.
func (s *sourceLines) at(name string, line int) string {
	const maxFile, maxLine = 1 << 20, 200
	all, known := s.files[name]
	if !known {
		if s.files == nil {
			s.files = map[string][][]byte{}
		}
		if text, err := cli.ReadFile(name, maxFile); err == nil {
			all = bytes.Split(text, []byte("\n"))
		}
		s.files[name] = all
	}
	if line < 1 || line > len(all) {
		return ""
	}
	text := strings.TrimSpace(string(all[line-1]))
	return cli.PrintableLine(text[:min(len(text), maxLine)])
}
