// Package live is a fabric that stays up until it is told to go: hosts in network
// namespaces in which one runs programs, and links that one breaks by hand.
//
// A lab is one process, in namespaces of its own, that nobody waits for (Up
// starts it, ServeMain is it). It is found by the name of an abstract socket, and
// obeys the user who started it and nobody else. Nothing of it is on disk: when
// its process ends, however it does, the kernel takes hosts and programs away.
//
// RunOnce is for those who want a fabric for the duration of one program.
//
// The program that uses the package must call ServeMain when it is started with
// ServeCommand as its first argument, and OnceMain with OnceCommand. All else is for clients, each of which has
// a connection of its own to the lab.
package live

import (
	"errors"

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
	PID      int                `json:"pid"` // whose end is the lab's
	Topology *topology.Topology `json:"topology"`
	Fabric   scenarios.Fabric   `json:"fabric"`
	Programs int                `json:"programs"` // that run in it now
}

// NotUpError is a lab that there is not.
type NotUpError struct{ Name string }

func (e *NotUpError) Error() string {
	return "no lab called " + e.Name + " is up: start one with 'fabrictest up'"
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
	// tellPID is what Up says last: a process in a PID namespace does not know what
	// it is called outside.
	tellPID verb = "pid"
)

// request is what a client sends, after a byte that carries its descriptors.
type request struct {
	Verb verb   `json:"verb"`
	Host string `json:"host,omitempty"`
	// Of exec:
	Args     []string `json:"args,omitempty"`
	Env      []string `json:"env,omitempty"`
	Dir      string   `json:"dir,omitempty"`
	Terminal bool     `json:"terminal,omitempty"` // wanted instead of the descriptors sent
	Rows     uint16   `json:"rows,omitempty"`
	Columns  uint16   `json:"columns,omitempty"`
	// Of set: the text of a scenario's impair section, or a link up or down.
	Impair string `json:"impair,omitempty"`
	Link   string `json:"link,omitempty"` // up, down
	PID    int    `json:"pid,omitempty"`
}

// answer is what a lab sends back.
type answer struct {
	Error string `json:"error,omitempty"`
	Info  *Info  `json:"info,omitempty"`
	// Started says that a program runs; with Terminal its terminal came along.
	Started bool `json:"started,omitempty"`
	// Exit is how it ended: a code, or 128 and the number of a signal.
	Exit *int `json:"exit,omitempty"`
}

// signalled is what a client sends while its program runs.
type signalled struct {
	Signal int `json:"signal"`
}
