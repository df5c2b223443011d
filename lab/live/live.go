// Package live runs labs: fabrics in network namespaces that stay up until they are
// taken down. Users run programs in their hosts and change their links.
//
// [Up] starts a lab as a detached process, which calls ServeMain: see package lab/daemon.
//
// [RunProgram] creates a fabric for the duration of one program.
//
// A program that uses the package must call ServeMain if its first argument is
// ServeCommand, and ProgramMain if it is ProgramCommand. Each client call uses one
// connection, has a timeout of some seconds, and ends early with its context.
package live

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/fabrictest/fabrictest/lab/daemon"
	"github.com/fabrictest/fabrictest/netns/topology"
	"github.com/fabrictest/fabrictest/scenarios"
)

// The first argument of the process of a lab, and of a fabric for one program.
const (
	ServeCommand   = "live-process"
	ProgramCommand = "once-process"
)

// DefaultName is the default name of a lab.
const DefaultName = "lab"

// Config is the configuration of a lab.
type Config struct {
	Name     string              `json:"name"`
	Scenario *scenarios.Scenario `json:"-"` // fabric and initial impairments
	// Direct lets the kernel carry all cables without initial impairments. They are
	// faster, and can be set down but not impaired.
	Direct bool `json:"direct,omitempty"`
	// Capture is the absolute path of a capture file for cables in user space;
	// empty for none.
	Capture string `json:"capture,omitempty"`
	// RDMA adds a kernel RDMA device of this kind, rxe or siw, to every NIC; empty
	// for none. It needs root.
	RDMA string `json:"rdma,omitempty"`
}

// Program is a program to run in every host of a new fabric.
type Program struct {
	Args []string `json:"args"`
	// Plain omits the host name before each output line.
	Plain bool `json:"plain,omitempty"`
	// KeepGoing lets the other hosts continue when one fails.
	KeepGoing bool `json:"keep_going,omitempty"`
}

// Info describes a lab.
type Info struct {
	Name     string             `json:"name"`
	PID      int                `json:"pid"` // of the lab's process
	Topology *topology.Topology `json:"topology"`
	Fabric   scenarios.Fabric   `json:"fabric"`
	Programs int                `json:"programs"` // running now
	// RDMA is the kind of the kernel RDMA devices; empty for none.
	RDMA string `json:"rdma,omitempty"`
}

// CheckName returns an error if the name of a lab is invalid.
func CheckName(name string) error { return daemon.CheckName(name) }

// NotRespondingError is returned if a lab does not answer in time.
type NotRespondingError = daemon.NotRespondingError

// ErrAlreadyUp is returned by Up if a lab of that name exists.
var ErrAlreadyUp = errors.New("a lab of that name is up already: take it down with 'fabrictest lab down', or give another name with --lab")

// labDaemons describes the processes of these labs. Tests shorten its timeouts.
var labDaemons = daemon.Kind{
	What: "lab", Prefix: "fabrictest", Command: ServeCommand, UpCommand: "fabrictest lab up", NameFlag: "--lab", Version: 1,
	LogFile: "%s.stderr", AlreadyUp: ErrAlreadyUp, ReplyTimeout: 10 * time.Second, RequestTimeout: 10 * time.Second,
}

// operation is the kind of a request.
type operation string

const (
	opInfo operation = "info"
	opExec operation = "exec"
	opSet  operation = "set"
	opDown operation = "down"
)

// request is a request of a client. The reply to opInfo is an Info; those to opSet and
// opDown are empty. The answer to opExec has the terminal, if one was asked for.
type request struct {
	Op   operation `json:"op"`
	Host string    `json:"host,omitempty"`
	// For opExec:
	daemon.Program
	Terminal bool   `json:"terminal,omitempty"` // use a new terminal instead of the sent descriptors
	Rows     uint16 `json:"rows,omitempty"`
	Columns  uint16 `json:"columns,omitempty"`
	// For opSet: the text of a scenario with impairments, or a link state.
	Impair string `json:"impair,omitempty"`
	Link   string `json:"link,omitempty"` // up, down
}

// State describes a lab. A lab that does not answer is Silent, and has only a name and a PID.
type State struct {
	Info
	Silent bool `json:"silent,omitempty"`
}

// QueryAllTimeout is how long QueryAll waits for labs that do not answer.
const QueryAllTimeout = 4 * time.Second

// QueryAll returns the states of all labs of this user, which it queries concurrently. A lab that
// does not respond is Silent. It omits labs that go down meanwhile or whose query fails otherwise.
func QueryAll(ctx context.Context) ([]State, error) {
	names, err := List(ctx)
	if err != nil {
		return nil, err
	}
	states := make([]*State, len(names))
	var wg sync.WaitGroup
	for i, name := range names {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, QueryAllTimeout)
			defer cancel()
			info, err := Query(ctx, name)
			if silent, ok := errors.AsType[*NotRespondingError](err); ok {
				states[i] = &State{Info: Info{Name: name, PID: silent.PID}, Silent: true}
			} else if err == nil {
				states[i] = &State{Info: *info}
			}
		})
	}
	wg.Wait()
	found := make([]State, 0, len(names))
	for _, s := range states {
		if s != nil {
			found = append(found, *s)
		}
	}
	return found, ctx.Err()
}

// WriteStates prints for each lab its name, numbers of hosts and running programs, and process.
func WriteStates(w io.Writer, labs []State) error {
	if len(labs) == 0 {
		_, err := fmt.Fprintln(w, "No lab is up: start one with 'fabrictest lab up'.")
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, l := range labs {
		if l.Silent {
			fmt.Fprintf(t, "%s\tdoes not answer\t\tprocess %d\n", l.Name, l.PID)
			continue
		}
		fmt.Fprintf(t, "%s\t%d hosts\t%d programs\tprocess %d\n", l.Name, len(l.Topology.Hosts), l.Programs, l.PID)
	}
	return t.Flush()
}

// WriteTable prints a line for each NIC of the lab: its host, name, IPv6 and IPv4 address, and
// the node at the other end of its cable.
func (info *Info) WriteTable(w io.Writer) error {
	const ipv6, ipv4 = false, true
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, h := range info.Topology.Hosts {
		for i, n := range h.NICs {
			name, farEnd := h.Name, ""
			if i > 0 {
				name = "" // only in the host's first line
			}
			port := topology.Port{Node: h.Name, NIC: n.Name}
			if c, ok := info.Topology.CableAt(port); ok {
				farEnd = "to " + c.Other(port).Node
			}
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", name, n.Name, n.Addr(ipv6), n.Addr(ipv4), farEnd)
		}
	}
	return t.Flush()
}

// WriteHints prints the NICs of the lab, and examples of commands to use the lab. program is the
// command name that the examples begin with.
func (info *Info) WriteHints(w io.Writer, program string) error {
	if err := info.WriteTable(w); err != nil {
		return err
	}
	lab := ""
	if info.Name != DefaultName {
		lab = " --lab " + info.Name
	}
	downArg := strings.TrimPrefix(lab, " --lab") // lab down takes the name without the flag
	_, err := fmt.Fprintf(w, `
Lab %s is up, process %d.

    %[3]s lab exec%[4]s host0 -- bash
    %[3]s lab set%[4]s host1 loss=5%%
    %[3]s lab down%[5]s
`, info.Name, info.PID, program, lab, downArg)
	return err
}
