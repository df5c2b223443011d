// Package daemon runs a lab as a detached process in namespaces of its own, and connects
// clients to it over an abstract Unix socket with the lab's name. Requests, replies and
// programs use the frames of package control; descriptors travel beside them.
//
// A lab serves only the user who started it, and clients connect only to labs of their own
// user, because any user may bind an abstract name. When the process ends, the kernel
// removes its namespaces and kills its programs. Only the log of a crash remains.
//
// It is independent of what a lab contains: lab/live and lab/kernel use it. It needs Linux.
package daemon

import (
	"fmt"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/fabrictest/fabrictest/control"
)

// Kind is a kind of lab.
type Kind struct {
	What      string // in errors: "lab"
	Prefix    string // of socket names
	Command   string // first argument of the lab's process, whose main function is Serve
	UpCommand string // starts a lab, in errors
	NameFlag  string // gives another name, in errors
	Version   uint64 // of its requests
	LogFile   string // of standard error, below the folder of labs; %s is the name
	AlreadyUp error  // returned by Start if a lab of that name exists

	// ReplyTimeout bounds the time of a lab's reply, RequestTimeout of a client's request.
	ReplyTimeout, RequestTimeout time.Duration

	// EncodeError and DecodeError carry errors of a kind of its own from a lab to its
	// client. nil keeps the text only.
	EncodeError func(error) error
	DecodeError func(*control.CloseError) error
}

const (
	// maxRequest limits a request; most of it is the environment.
	maxRequest = 4 << 20
	// maxReply limits a reply, such as the description of a lab.
	maxReply = 64 << 20
)

// protocol returns the parameters of the hello that a client sends and a lab reads.
func (k *Kind) protocol() control.Protocol {
	return control.Protocol{Version: k.Version, Us: "the " + k.What, Them: "the client", MaxHello: maxRequest}
}

// validName matches names that are valid in a socket, a file and a command line.
var validName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// CheckName returns an error if the name of a lab is invalid.
func CheckName(name string) error {
	if !validName.MatchString(name) {
		return fmt.Errorf("invalid lab name %.70q: use up to 63 letters, digits, dots, dashes and underscores, starting with a letter or digit", name)
	}
	return nil
}

// NotUpError is returned if no lab has the name.
type NotUpError struct {
	What, Name, UpCommand string
	CrashLog              string // log of the last lab of that name, if it crashed
}

// Error implements error.
func (e *NotUpError) Error() string {
	crashed := ""
	if e.CrashLog != "" {
		crashed = " (the last one crashed: see " + e.CrashLog + ")"
	}
	return "no " + e.What + " called " + e.Name + " is up: start one with '" + e.UpCommand + "'" + crashed
}

// NotRespondingError is returned if a lab does not answer in time.
type NotRespondingError struct {
	What, Name string
	PID        int // of its process; 0 if the client could not connect
}

// Error implements error. PID is 0 if the client could not connect, because other clients fill the
// queue of the lab's socket.
func (e *NotRespondingError) Error() string {
	if e.PID == 0 {
		return fmt.Sprintf("%s %s does not answer: too many clients are waiting", e.What, e.Name)
	}
	return fmt.Sprintf("%s %s does not answer: its process %d is stopped or gets no CPU time; 'kill -CONT %[3]d' continues it, 'kill -9 %[3]d' ends it", e.What, e.Name, e.PID)
}

// Program is a program to run in a lab, as part of a request.
type Program struct {
	Path string   `json:"path,omitempty"` // resolved by the client's PATH
	Args []string `json:"args,omitempty"`
	Env  []string `json:"env,omitempty"`
	Dir  string   `json:"dir,omitempty"`
}

// HeadTail keeps the beginning and the end of a program's output.
type HeadTail struct {
	mu         sync.Mutex
	head, tail []byte
}

// Write implements io.Writer. It keeps the first and the last keepBytes bytes of the output.
func (h *HeadTail) Write(b []byte) (n int, err error) {
	const keepBytes = 4 << 10
	h.mu.Lock()
	defer h.mu.Unlock()
	room := min(keepBytes-len(h.head), len(b))
	h.head = append(h.head, b[:room]...)
	h.tail = append(h.tail, b[room:]...)
	h.tail = h.tail[max(0, len(h.tail)-keepBytes):]
	return len(b), nil
}

// String returns the beginning and the end of the output, without surrounding space.
func (h *HeadTail) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.TrimSpace(string(h.head) + string(h.tail))
}
