// Package sequence draws the run of a program of ranks as a sequence diagram, as text and as a page:
// a lane for each rank with its calls, arrows for messages and packets, and the choices of the run that
// differ from the default.
package sequence

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/explore"
	"github.com/fabrictest/fabrictest/internal/cli"
)

// Diagram is a run of ranks. Times are virtual.
type Diagram struct {
	Program string // with its arguments
	Command string // that repeats the run
	Fabric  string // a description
	// Ranks are the ends of the ranks, by rank.
	Ranks    []Rank
	Calls    []Call    // in the order in which they began
	Messages []Message // between calls
	Packets  []Packet  // in the order of their arrival
	Choices  []Choice  // that differ from the default
	// Failure is the error of the run; empty if it did not fail. Findings are those of the checkers.
	Failure  string
	Findings []explore.Finding
}

// Rank is a rank and its end.
type Rank struct {
	Host int
	End  time.Duration // negative if it has not ended
	Err  string
}

// Call is a call of a rank.
type Call struct {
	explore.Place
	Args       string
	Source     string        // the line of the program; empty if it is not known
	Begin, End time.Duration // End is negative if it has not returned
	Err        string
}

// Message is sent by a call, and received by the end of another. They are indices of Diagram.Calls.
type Message struct{ From, To int }

// Packet is a packet between two hosts.
type Packet struct {
	From, To      int // hosts
	Sent, Arrived time.Duration
	Lost          bool   // it has not arrived
	Text, Details string // Text is short
}

// Choice is a choice of the run.
type Choice struct {
	At   time.Duration
	Text string
}

// place returns the file without its folder, and the line.
func place(p *explore.Place) string {
	if p.File == "" {
		return ""
	}
	return fmt.Sprintf("%s:%d", path.Base(p.File), p.Line)
}

// text returns the call with its arguments.
func (c *Call) text() string {
	if c.Args == "" {
		return c.Call
	}
	return c.Call + " " + c.Args
}

// bad returns why a call is marked: its error, or the kind of a finding that names it; or empty.
func (d *Diagram) bad(c *Call) string {
	if c.Err != "" {
		return c.Err
	}
	for i := range d.Findings {
		if slices.Contains(d.Findings[i].Places, c.Place) {
			return d.Findings[i].Kind
		}
	}
	return ""
}

// summary is the first line of the failure.
func (d *Diagram) summary() string {
	first, _, _ := strings.Cut(d.Failure, "\n")
	return cli.PrintableLine(first)
}

// lane is a column of the diagram: a rank, or the NICs of a host with several ranks.
type lane struct {
	name string
	rank int // -1 for a host
}

// lanes returns the lanes, and the lane of each rank and of each host.
func (d *Diagram) lanes() (all []lane, ofRank, ofHost []int) {
	ranks := map[int]int{}
	for _, r := range d.Ranks {
		ranks[r.Host]++
	}
	ofRank = make([]int, len(d.Ranks))
	for i, r := range d.Ranks {
		for len(ofHost) <= r.Host {
			host := len(ofHost)
			ofHost = append(ofHost, len(all))
			if ranks[host] > 1 {
				all = append(all, lane{fmt.Sprintf("host %d", host), -1})
			}
		}
		ofRank[i] = len(all)
		all = append(all, lane{fmt.Sprintf("rank %d", i), i})
	}
	return all, ofRank, ofHost
}
