package kernel

import (
	"context"
	"io"
	"net"
	"os"

	"github.com/fabrictest/fabrictest/lab/kernel/guest"
)

// guestCalls is what guests are asked for, by whoever can reach them.
type guestCalls struct {
	// dial connects to a guest's command server. The context that it returns ends with
	// the guest; stop lets go of it.
	dial func(ctx context.Context, id int) (_ context.Context, stop context.CancelFunc, _ net.Conn, _ error)
}

// Exec runs a program in a guest and returns its exit code; see guest.Exec. A guest
// that goes meanwhile is a GuestError.
func (g *guestCalls) Exec(ctx context.Context, id int, c guest.Command) (code int, err error) {
	err = g.call(ctx, id, func(ctx context.Context, conn net.Conn) (err error) {
		code, err = guest.Exec(ctx, conn, c)
		return err
	})
	return code, err
}

// Output runs a program in a guest and returns what it printed.
func (g *guestCalls) Output(ctx context.Context, id int, c guest.Command) (output string, code int, err error) {
	err = g.call(ctx, id, func(ctx context.Context, conn net.Conn) (err error) {
		output, code, err = guest.Output(ctx, conn, c)
		return err
	})
	return output, code, err
}

// Put writes a file in a guest; see guest.Put.
func (g *guestCalls) Put(ctx context.Context, id int, path string, mode os.FileMode, size int64, from io.Reader) error {
	return g.call(ctx, id, func(ctx context.Context, conn net.Conn) error {
		return guest.Put(ctx, conn, path, mode, size, from)
	})
}

// SetDevices gives a guest's wire other RDMA devices.
func (g *guestCalls) SetDevices(ctx context.Context, id int, devices []guest.Device) error {
	return g.call(ctx, id, func(ctx context.Context, conn net.Conn) error {
		return guest.SetDevices(ctx, conn, devices)
	})
}

func (g *guestCalls) call(ctx context.Context, id int, ask func(context.Context, net.Conn) error) error {
	ctx, stop, conn, err := g.dial(ctx, id)
	if err != nil {
		return err
	}
	defer stop()
	return lateNews(ctx, ask(ctx, conn))
}
