package kernel

import (
	"context"
	"io"
	"net"
	"os"

	"github.com/fabrictest/fabrictest/lab/kernel/guest"
)

// guestClient sends commands to guests.
type guestClient struct {
	// dial connects to a guest's command server. The returned context ends with the
	// guest; stop releases it.
	dial func(ctx context.Context, id int) (_ context.Context, stop context.CancelFunc, _ net.Conn, _ error)
}

// Exec runs a program in a guest and returns its exit code; see guest.Exec. If the
// guest ends, it returns a GuestError.
func (g *guestClient) Exec(ctx context.Context, id int, c guest.Command) (code int, err error) {
	err = g.withConn(ctx, id, func(ctx context.Context, conn net.Conn) (err error) {
		code, err = guest.Exec(ctx, conn, c)
		return err
	})
	return code, err
}

// Output runs a program in a guest and returns its output.
func (g *guestClient) Output(ctx context.Context, id int, c guest.Command) (output string, code int, err error) {
	err = g.withConn(ctx, id, func(ctx context.Context, conn net.Conn) (err error) {
		output, code, err = guest.Output(ctx, conn, c)
		return err
	})
	return output, code, err
}

// Put writes a file in a guest; see guest.Put.
func (g *guestClient) Put(ctx context.Context, id int, path string, mode os.FileMode, size int64, from io.Reader) error {
	return g.withConn(ctx, id, func(ctx context.Context, conn net.Conn) error {
		return guest.Put(ctx, conn, path, mode, size, from)
	})
}

// SetDevices replaces the RDMA devices of a guest.
func (g *guestClient) SetDevices(ctx context.Context, id int, devices []guest.Device) error {
	return g.withConn(ctx, id, func(ctx context.Context, conn net.Conn) error {
		return guest.SetDevices(ctx, conn, devices)
	})
}

// withConn calls do with a connection to a guest, and returns a GuestError if the guest ends.
func (g *guestClient) withConn(ctx context.Context, id int, do func(context.Context, net.Conn) error) error {
	ctx, stop, conn, err := g.dial(ctx, id)
	if err != nil {
		return err
	}
	defer stop()
	return guestExitError(ctx, do(ctx, conn))
}
