package kernel

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"

	"github.com/fabrictest/fabrictest/lab/kernel/guest"
	"github.com/fabrictest/fabrictest/lab/kernel/image"
)

// ServeCommand is the first argument of a lab's process.
const ServeCommand = "kernel-lab-process"

// ProgramCommand is the first argument of the process of a lab for one program.
const ProgramCommand = "kernel-once-process"

// guestsVar is the environment variable of programs in a lab's namespace, with the
// number of guests.
const guestsVar = "FABRICTEST_KERNEL_GUESTS"

// errInsideLab is returned to programs in a lab's namespace for requests to the
// lab.
var errInsideLab = errors.New("a program in a lab's network reaches its guests, but not the lab: run the command outside")

// DefaultName is the default name of a lab.
const DefaultName = "kernel"

// Info describes a lab of Start.
type Info struct {
	Name    string         `json:"name"`
	PID     int            `json:"pid"` // of the lab's process
	Series  image.Series   `json:"series"`
	Release string         `json:"release"` // of the guests' kernel
	Accel   Accel          `json:"accel"`
	Devices []guest.Device `json:"devices"` // at boot
	MTU     int            `json:"mtu"`
	Guests  []Status       `json:"guests"`
	// Consoles is the directory of the console logs, which remain after the lab is
	// down.
	Consoles string `json:"consoles,omitempty"`
}

// validName matches names that are valid in a socket, a directory and a command
// line.
var validName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// CheckName returns an error if the name of a lab is invalid.
func CheckName(name string) error {
	if !validName.MatchString(name) {
		return fmt.Errorf("invalid lab name %.70q: use up to 63 letters, digits, dots, dashes and underscores, starting with a letter or digit", name)
	}
	return nil
}

// NotUpError is returned if no lab has the name.
type NotUpError struct{ Name string }

func (e *NotUpError) Error() string {
	return "no kernel lab called " + e.Name + " is up: start one with 'fabrictest lab kernel up'"
}

// ErrAlreadyUp is returned by Start if a lab of that name exists.
var ErrAlreadyUp = errors.New("a kernel lab of that name is up already: take it down with 'fabrictest lab kernel down', or give another name with --lab")

// labDir returns the directory for the consoles and the log of a lab; empty for a
// user without a cache directory.
func labDir(name string) string {
	cache, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(cache, "fabrictest", "labs", "kernel-"+name)
}

// operation is the kind of a request.
type operation string

const (
	opStatus  operation = "status"
	opGuest   operation = "guest" // a connection to a guest's command server
	opRestart operation = "restart"
	opConsole operation = "console"
	opSet     operation = "set"
	opSocket  operation = "socket"
	opRun     operation = "run"
	opDown    operation = "down"
)

// request is sent by a client, after a byte that carries its descriptors.
type request struct {
	Op    operation `json:"verb"`
	Guest int       `json:"guest,omitempty"`
	// For opSet: impairments, or else the link state.
	Impair *Impairment `json:"impair,omitempty"`
	Link   bool        `json:"link,omitempty"`
	// For opSocket:
	Network string `json:"network,omitempty"`
	Address string `json:"address,omitempty"`
	Listen  bool   `json:"listen,omitempty"`
	// For opRun:
	Path string   `json:"path,omitempty"`
	Args []string `json:"args,omitempty"`
	Env  []string `json:"env,omitempty"`
	Dir  string   `json:"dir,omitempty"`
}

// response is sent by the lab, after a byte that carries its descriptors. Some
// requests have several.
type response struct {
	Error    string      `json:"error,omitempty"`
	Guest    *GuestError `json:"guest,omitempty"` // set if the error is a GuestError
	Info     *Info       `json:"info,omitempty"`
	Text     string      `json:"text,omitempty"`
	ExitCode *int        `json:"exit,omitempty"` // or 128 plus the signal number
}

// signalMessage is sent by a client to signal its program.
type signalMessage struct {
	Signal int `json:"signal"`
}

func errorResponse(err error) (a response) {
	if err != nil {
		a.Error = err.Error()
		errors.As(err, &a.Guest)
	}
	return a
}

// err returns the error of a response.
func (a response) err() error {
	switch {
	case a.Guest != nil:
		return a.Guest
	case a.Error != "":
		return errors.New(a.Error)
	}
	return nil
}

// job is the input of a lab's process.
type job struct {
	Name   string
	Config Config
}
