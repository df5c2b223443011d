package guest

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Port is where a guest serves, on its control link.
const Port = 2323

// op is what is asked for.
type op string

const (
	opExec    op = "exec"
	opPut     op = "put"
	opDevices op = "devices"
)

// request is the first thing that is said on a connection.
type request struct {
	Op op `json:"op"`
	// Of exec:
	Args []string `json:"args,omitempty"`
	Env  []string `json:"env,omitempty"` // besides the guest's own
	Dir  string   `json:"dir,omitempty"`
	// Of put:
	Path string `json:"path,omitempty"`
	Mode uint32 `json:"mode,omitempty"`
	Size int64  `json:"size,omitempty"`
	// Of devices:
	Devices []Device `json:"devices,omitempty"`
}

// kind is what a frame is about.
type kind byte

const (
	kindRequest kind = iota + 1
	kindStdin        // an empty one is its end
	kindStdout
	kindStderr
	kindSignal // its number, one octet
	kindExit   // how the program ended, four octets; a file or devices: 0
	kindError  // why it could not be done
	kindData   // a part of a file
)

// maxFrame is how much a frame may hold.
const maxFrame = 256 << 10

// writeFrame sends a frame as one write, so that frames of several goroutines that
// take turns do not mix.
func writeFrame(w io.Writer, k kind, payload []byte) error {
	b := make([]byte, 0, 5+len(payload))
	b = append(b, byte(k))
	b = binary.BigEndian.AppendUint32(b, uint32(len(payload)))
	_, err := w.Write(append(b, payload...))
	return err
}

// readFrame takes the next frame. Its payload is the caller's.
func readFrame(r io.Reader) (kind, []byte, error) {
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint32(head[1:])
	if n > maxFrame {
		return 0, nil, fmt.Errorf("a frame of %d octets, more than %d", n, maxFrame)
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
		return fmt.Errorf("arguments and environment of %d octets are more than the %d that a guest takes", len(b), maxFrame)
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
		return 0, fmt.Errorf("an exit code of %d octets", len(payload))
	}
	return int(binary.BigEndian.Uint32(payload)), nil
}
