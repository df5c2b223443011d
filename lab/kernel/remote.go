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

// ServeCommand is what the program is started with to be the process of a lab that
// stays up.
const ServeCommand = "kernel-lab-process"

// OnceCommand is what the program is started with to be the process of a lab for one
// program.
const OnceCommand = "kernel-once-process"

// insideVariable is in the environment of programs that run on a lab's network: how
// many guests there are.
const insideVariable = "FABRICTEST_KERNEL_GUESTS"

// errInside is what programs there are told that ask for more than a guest.
var errInside = errors.New("from within a lab's network only its guests are reached, not the lab: ask from outside")

// DefaultName is what a lab is called that was given no name.
const DefaultName = "kernel"

// Info is what a lab that stays up is like.
type Info struct {
	Name    string         `json:"name"`
	PID     int            `json:"pid"` // of its process, whose end is the lab's
	Series  image.Series   `json:"series"`
	Release string         `json:"release"` // of the guests' kernel
	Accel   Accel          `json:"accel"`
	Devices []guest.Device `json:"devices"` // that guests had when they were brought up
	MTU     int            `json:"mtu"`
	Guests  []Status       `json:"guests"`
	// Consoles is the folder with what guests have printed, also when the lab is down.
	Consoles string `json:"consoles,omitempty"`
}

// goodName is what fits the name of a socket, a folder, and a command line.
var goodName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// CheckName says what is wrong with the name of a lab.
func CheckName(name string) error {
	if !goodName.MatchString(name) {
		return fmt.Errorf("a lab cannot be called %.70q: take up to 63 letters, digits, dots, dashes and underscores, a letter or digit first", name)
	}
	return nil
}

// NotUpError is a lab that there is not.
type NotUpError struct{ Name string }

func (e *NotUpError) Error() string {
	return "no kernel lab called " + e.Name + " is up: start one with 'fabrictest lab kernel up'"
}

// ErrUp is returned by Start if there is a lab of that name already.
var ErrUp = errors.New("a kernel lab of that name is up already: take it down with 'fabrictest lab kernel down', or give another name with --lab")

// folderOf is where a lab that stays up writes consoles, and what it says if it
// crashes; none for a user without a cache.
func folderOf(name string) string {
	cache, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(cache, "fabrictest", "labs", "kernel-"+name)
}

// verb is what a client asks for.
type verb string

const (
	askStatus  verb = "status"
	askGuest   verb = "guest" // for a connection to what serves there
	askRestart verb = "restart"
	askConsole verb = "console"
	askSet     verb = "set"
	askSocket  verb = "socket"
	askRun     verb = "run"
	askDown    verb = "down"
)

// request is what a client sends, after an octet that carries its descriptors.
type request struct {
	Verb  verb `json:"verb"`
	Guest int  `json:"guest,omitempty"`
	// Of set: what packets meet, or else whether the link is up.
	Impair *Impairment `json:"impair,omitempty"`
	Link   bool        `json:"link,omitempty"`
	// Of socket:
	Network string `json:"network,omitempty"`
	Address string `json:"address,omitempty"`
	Listen  bool   `json:"listen,omitempty"`
	// Of run:
	Path string   `json:"path,omitempty"`
	Args []string `json:"args,omitempty"`
	Env  []string `json:"env,omitempty"`
	Dir  string   `json:"dir,omitempty"`
}

// answer is what a lab sends back, after an octet that carries its descriptors; some
// requests have more than one.
type answer struct {
	Error string      `json:"error,omitempty"`
	Guest *GuestError `json:"guest,omitempty"` // the error, where it is one
	Info  *Info       `json:"info,omitempty"`
	Text  string      `json:"text,omitempty"`
	Exit  *int        `json:"exit,omitempty"` // a code, or 128 and the number of a signal
}

// signalled is what a client sends while its program runs.
type signalled struct {
	Signal int `json:"signal"`
}

func failed(err error) (a answer) {
	if err != nil {
		a.Error = err.Error()
		errors.As(err, &a.Guest)
	}
	return a
}

// err is what failed was given.
func (a answer) err() error {
	switch {
	case a.Guest != nil:
		return a.Guest
	case a.Error != "":
		return errors.New(a.Error)
	}
	return nil
}

// job is what the process of a lab is told.
type job struct {
	Name   string
	Config Config
}
