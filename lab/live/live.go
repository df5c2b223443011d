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
	"errors"
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

// Errors of clients.
type (
	// NotUpError is returned if no lab has the name.
	NotUpError = daemon.NotUpError
	// NotRespondingError is returned if a lab does not answer in time.
	NotRespondingError = daemon.NotRespondingError
)

// ErrAlreadyUp is returned by Up if a lab of that name exists.
var ErrAlreadyUp = errors.New("a lab of that name is up already: take it down with 'fabrictest lab down', or give another name with --lab")

// kind is the kind of these labs. Tests shorten its timeouts.
var kind = daemon.Kind{
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
