package launch

import (
	"os"

	"github.com/fabrictest/fabrictest/control"
)

// Kinds and version of the protocol, for ranks that violate it.
const (
	Version     = version
	Data        = kindData
	Barrier     = kindBarrier
	Sample      = kindSample
	Report      = kindReport
	BarrierDone = kindBarrierDone

	EventKindFrame = kindEvent
	StopFrame      = kindStop
)

// WaitForEnd waits until a host has ended.
func (p *Proxy) WaitForEnd(host int) { _, _ = p.conn.Recv(host, -1) }

// SendFrame sends a frame to the launcher.
func (p *Proxy) SendFrame(f control.Frame) error { return p.conn.put("test", f) }

// JoinWith is Join with the function to call when the connection ends before Close.
var JoinWith = join

// JoinRaw joins the launcher and returns the channel.
func JoinRaw() (*os.File, error) {
	ch, err := inheritedSocket("3")
	if err == nil {
		_, err = handshake(control.New(ch, control.Config{}), hello{PID: os.Getpid()})
	}
	return ch, err
}
