// Package live runs labs: fabrics in network namespaces that stay up until they are
// taken down. Users run programs in their hosts and change their links.
//
// [Up] starts a lab as a detached process in new namespaces, which calls ServeMain.
// Clients connect to it over an abstract Unix socket with the lab's name. The lab
// serves only the user who started it, and clients connect only to labs of their
// own user, because any user may bind an abstract name. When the process ends, the
// kernel removes the hosts and kills their programs. Only the log of a crash
// remains, in the user's cache directory.
//
// [RunProgram] creates a fabric for the duration of one program.
//
// A program that uses the package must call ServeMain if its first argument is
// ServeCommand, and ProgramMain if it is ProgramCommand. Each client call uses one
// connection, has a timeout of some seconds, and ends early with its context.
package live

import (
	"errors"
	"fmt"
	"regexp"

	"github.com/fabrictest/fabrictest/control"
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
	Name     string
	CrashLog string // log of the last lab of that name, if it crashed
}

func (e *NotUpError) Error() string {
	crashed := ""
	if e.CrashLog != "" {
		crashed = " (the last one crashed: see " + e.CrashLog + ")"
	}
	return "no lab called " + e.Name + " is up: start one with 'fabrictest up'" + crashed
}

// NotRespondingError is returned if a lab does not answer in time.
type NotRespondingError struct {
	Name string
	PID  int // of its process; 0 if that is not known
}

func (e *NotRespondingError) Error() string {
	if e.PID == 0 {
		return fmt.Sprintf("lab %s does not answer: too many clients are waiting", e.Name)
	}
	return fmt.Sprintf("lab %s does not answer: its process %d is stopped or gets no CPU time; 'kill -CONT %[2]d' continues it, 'kill -9 %[2]d' ends it", e.Name, e.PID)
}

// ErrAlreadyUp is returned by Up if a lab of that name exists.
var ErrAlreadyUp = errors.New("a lab of that name is up already: take it down with 'fabrictest down', or give another name with --name")

// operation is the kind of a request.
type operation string

const (
	opInfo operation = "info"
	opExec operation = "exec"
	opSet  operation = "set"
	opDown operation = "down"
)

// request is the hello of a client, after a byte that carries its descriptors. The lab
// answers with a Reply frame, whose body is an Info for opInfo, and empty for opSet and
// opDown. For opExec it sends a byte that may carry a terminal, and the frames of a
// control.Program. If the request fails, the answer is a Close frame with the error.
type request struct {
	Op   operation `json:"op"`
	Host string    `json:"host,omitempty"`
	// For opExec:
	Path     string   `json:"path,omitempty"` // resolved by the client's PATH
	Args     []string `json:"args,omitempty"`
	Env      []string `json:"env,omitempty"`
	Dir      string   `json:"dir,omitempty"`
	Terminal bool     `json:"terminal,omitempty"` // use a new terminal instead of the sent descriptors
	Rows     uint16   `json:"rows,omitempty"`
	Columns  uint16   `json:"columns,omitempty"`
	// For opSet: the text of a scenario with impairments, or a link state.
	Impair string `json:"impair,omitempty"`
	Link   string `json:"link,omitempty"` // up, down
}

const (
	version = 1
	// maxRequest limits a request; most of it is the environment.
	maxRequest = 4 << 20
	// maxInfo limits the description of a lab.
	maxInfo = 64 << 20
)

// protocol is that of a lab's side.
var protocol = control.Protocol{Version: version, Us: "the lab", Them: "the client", MaxHello: maxRequest}
