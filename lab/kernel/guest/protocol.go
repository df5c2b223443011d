package guest

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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

// request is the first frame of a connection.
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

// kind is the type of a frame.
type kind byte

const (
	kindRequest kind = iota + 1
	kindStdin        // empty at the end of input
	kindStdout
	kindStderr
	kindSignal // number, one byte
	kindExit   // exit code, four bytes; 0 for put and devices
	kindError  // error text
	kindData   // part of a file
)

// maxFrame bounds the payload of a frame.
const maxFrame = 256 << 10

// writeFrame writes a frame with a single Write, so that concurrent frames do not
// mix.
func writeFrame(w io.Writer, k kind, payload []byte) error {
	b := make([]byte, 0, 5+len(payload))
	b = append(b, byte(k))
	b = binary.BigEndian.AppendUint32(b, uint32(len(payload)))
	_, err := w.Write(append(b, payload...))
	return err
}

// readFrame reads the next frame. The caller owns its payload.
func readFrame(r io.Reader) (kind, []byte, error) {
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint32(head[1:])
	if n > maxFrame {
		return 0, nil, fmt.Errorf("a frame of %d bytes, more than %d", n, maxFrame)
	}
	payload := make([]byte, n)
	if _, err := io.ReadFull(r, payload); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return 0, nil, err
	}
	return kind(head[0]), payload, nil
}

func writeRequest(w io.Writer, r request) error {
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if len(b) > maxFrame {
		return fmt.Errorf("arguments and environment have %d bytes, more than the limit of %d", len(b), maxFrame)
	}
	return writeFrame(w, kindRequest, b)
}

func readRequest(r io.Reader) (req request, err error) {
	k, b, err := readFrame(r)
	if err != nil {
		return req, err
	}
	if k != kindRequest {
		return req, fmt.Errorf("frame %d in place of a request", k)
	}
	return req, json.Unmarshal(b, &req)
}

func exitPayload(code int) []byte { return binary.BigEndian.AppendUint32(nil, uint32(code)) }

func exitCode(payload []byte) (int, error) {
	if len(payload) != 4 {
		return 0, fmt.Errorf("an exit code of %d bytes", len(payload))
	}
	return int(binary.BigEndian.Uint32(payload)), nil
}
