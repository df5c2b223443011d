// Package live is a fabric that stays up until it is told to go: hosts in network
// namespaces in which one runs programs, and links that one breaks by hand.
//
// A lab is one process, in namespaces of its own, that nobody waits for (Up
// starts it, ServeMain is it). It is found by the name of an abstract socket, and
// obeys the user who started it and nobody else; clients in turn speak to labs of
// their own user only, for abstract names are anybody's to take. When its process
// ends, however it does, the kernel takes hosts and programs away. All that it
// may leave on disk is what a crash had to say, in the user's cache.
//
// RunOnce is for those who want a fabric for the duration of one program.
//
// The program that uses the package must call ServeMain when it is started with
// ServeCommand as its first argument, and OnceMain with OnceCommand. All else is
// for clients: each call has a connection of its own to the lab, waits for it no
// longer than a few seconds, and ends early with its context.
package live

import (
	"errors"
	"fmt"
	"regexp"

	"github.com/fabrictest/fabrictest/netns/topology"
	"github.com/fabrictest/fabrictest/scenarios"
)

// What the program is started with to be a lab, and to be a fabric for one
// program.
const (
	ServeCommand = "live-process"
	OnceCommand  = "once-process"
)

// DefaultName is what a lab is called that was given no name.
const DefaultName = "lab"

// Config is a lab to be.
type Config struct {
	Name     string              `json:"name"`
	Scenario *scenarios.Scenario `json:"-"` // its fabric, and what packets meet from the start on
	// Direct leaves all cables to the kernel on which nothing happens from the
	// start on. They are faster, and can be cut but not impaired.
	Direct bool `json:"direct,omitempty"`
	// Capture is the file, by its absolute path, for what passes through cables that
	// are not the kernel's; empty for none.
	Capture string `json:"capture,omitempty"`
	// RDMA is the kind of the kernel's own RDMA in software that every NIC gets, rxe
	// or siw; empty for none. Only root can have it.
	RDMA string `json:"rdma,omitempty"`
}

// Once is a program to be run in every host of a fabric, and the fabric only for
// it.
type Once struct {
	Args []string `json:"args"`
	// Plain leaves out the name of the host before each line.
	Plain bool `json:"plain,omitempty"`
	// KeepGoing lets the others go on when one fails.
	KeepGoing bool `json:"keep_going,omitempty"`
}

// Info is what a lab is like.
type Info struct {
	Name     string             `json:"name"`
	PID      int                `json:"pid"` // of the lab's process, whose end is the lab's
	Topology *topology.Topology `json:"topology"`
	Fabric   scenarios.Fabric   `json:"fabric"`
	Programs int                `json:"programs"` // that run in it now
	// RDMA is the kind of the kernel's own RDMA devices that its hosts have; empty for
	// none.
	RDMA string `json:"rdma,omitempty"`
}

// goodName is what fits the name of a socket, a file, and a command line.
var goodName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// CheckName says what is wrong with the name of a lab.
func CheckName(name string) error {
	if !goodName.MatchString(name) {
		return fmt.Errorf("a lab cannot be called %.70q: take up to 63 letters, digits, dots, dashes and underscores, a letter or digit first", name)
	}
	return nil
}

// NotUpError is a lab that there is not.
type NotUpError struct {
	Name  string
	Trace string // the file with what the last of that name said when it crashed; usually none
}

func (e *NotUpError) Error() string {
	crashed := ""
	if e.Trace != "" {
		crashed = " (the last one crashed: see " + e.Trace + ")"
	}
	return "no lab called " + e.Name + " is up: start one with 'fabrictest up'" + crashed
}

// SilentError is a lab that is there and says nothing.
type SilentError struct {
	Name string
	PID  int // of its process; 0 if that is not known
}

func (e *SilentError) Error() string {
	if e.PID == 0 {
		return fmt.Sprintf("lab %s does not answer: too many wait for it", e.Name)
	}
	return fmt.Sprintf("lab %s does not answer: its process %d is stopped or has no time; 'kill -CONT %[2]d' lets it go on, 'kill -9 %[2]d' ends it", e.Name, e.PID)
}

// ErrUp is returned by Up if there is a lab of that name already.
var ErrUp = errors.New("a lab of that name is up already: take it down with 'fabrictest down', or give another name with --name")

// verb is what a client asks for.
type verb string

const (
	askInfo verb = "info"
	askExec verb = "exec"
	askSet  verb = "set"
	askDown verb = "down"
)

// request is what a client sends, after a byte that carries its descriptors.
type request struct {
	Verb verb   `json:"verb"`
	Host string `json:"host,omitempty"`
	// Of exec:
	Path     string   `json:"path,omitempty"` // found by the client: its PATH counts
	Args     []string `json:"args,omitempty"`
	Env      []string `json:"env,omitempty"`
	Dir      string   `json:"dir,omitempty"`
	Terminal bool     `json:"terminal,omitempty"` // wanted instead of the descriptors sent
	Rows     uint16   `json:"rows,omitempty"`
	Columns  uint16   `json:"columns,omitempty"`
	// Of set: the text of a scenario's impair section, or a link up or down.
	Impair string `json:"impair,omitempty"`
	Link   string `json:"link,omitempty"` // up, down
}

// answer is what a lab sends back.
type answer struct {
	Error string `json:"error,omitempty"`
	Info  *Info  `json:"info,omitempty"`
	// Heard says that a signal arrived, so that a client whose lab is stuck learns it.
	Heard bool `json:"heard,omitempty"`
	// Exit is how it ended: a code, or 128 and the number of a signal.
	Exit *int `json:"exit,omitempty"`
}

// signalled is what a client sends while its program runs.
type signalled struct {
	Signal int `json:"signal"`
}
