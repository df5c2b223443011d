package guest

import (
	"encoding/json"
	"fmt"
	"net"

	"github.com/fabrictest/fabrictest/control"
)

// Port is the TCP port of a guest's server, on its control link.
const Port = 2323

// op is the kind of a request.
type op string

const (
	opExec    op = "exec"
	opPut     op = "put"
	opDevices op = "devices"
)

// request is the hello of a client. The guest answers with an Exit frame, or with a Close
// frame if the request failed. Input of a program and the content of a file are Stdin
// frames.
type request struct {
	Op op `json:"op"`
	// For opExec:
	Args []string `json:"args,omitempty"`
	Env  []string `json:"env,omitempty"` // added to the guest's environment
	Dir  string   `json:"dir,omitempty"`
	// For opPut:
	Path string `json:"path,omitempty"`
	Mode uint32 `json:"mode,omitempty"`
	Size int64  `json:"size,omitempty"`
	// For opDevices:
	Devices []Device `json:"devices,omitempty"`
}

const (
	version    = 1
	maxRequest = 256 << 10
)

// protocol is that of the guest's side.
var protocol = control.Protocol{Version: version, Us: "the guest", Them: "the client", MaxHello: maxRequest}

// send sends a request.
func send(conn net.Conn, r request) (*control.Conn, error) {
	b, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	if len(b) > maxRequest {
		return nil, fmt.Errorf("arguments and environment have %d bytes, more than the limit of %d", len(b), maxRequest)
	}
	c := control.New(conn, control.Config{Limits: control.ProgramClientLimits})
	return c, c.SendHello(protocol, json.RawMessage(b))
}
