//go:build !linux

package kernel

import (
	"context"
	"errors"
	"io"
	"os"

	"github.com/fabrictest/fabrictest/lab/kernel/guest"
)

var errLinux = errors.New("kernel labs are made of Linux namespaces and QEMU: run them on Linux, on x86-64")

// Check says that there are no kernel labs here; so do all others.
func Check() error { return errLinux }

// Start says that there are no kernel labs here.
func Start(context.Context, string, Config) error { return errLinux }

// List is empty.
func List() ([]string, error) { return nil, nil }

// ServeMain says that there are no kernel labs here.
func ServeMain() error { return errLinux }

// RunOnce says that there are no kernel labs here.
func RunOnce(context.Context, Config, []string) (int, error) { return 0, errLinux }

// OnceMain says that there are no kernel labs here.
func OnceMain() (int, error) { return 0, errLinux }

// Remote cannot be had.
type Remote struct{}

// Connect says that there are no kernel labs here.
func Connect(string) (*Remote, error) { return nil, errLinux }

// Info says that there are no kernel labs here.
func (*Remote) Info(context.Context) (*Info, error) { return nil, errLinux }

// Exec says that there are no kernel labs here.
func (*Remote) Exec(context.Context, int, guest.Command) (int, error) { return 0, errLinux }

// Output says that there are no kernel labs here.
func (*Remote) Output(context.Context, int, guest.Command) (string, int, error) {
	return "", 0, errLinux
}

// Put says that there are no kernel labs here.
func (*Remote) Put(context.Context, int, string, os.FileMode, int64, io.Reader) error {
	return errLinux
}

// SetDevices says that there are no kernel labs here.
func (*Remote) SetDevices(context.Context, int, []guest.Device) error { return errLinux }

// Restart says that there are no kernel labs here.
func (*Remote) Restart(context.Context, int) error { return errLinux }

// Impair says that there are no kernel labs here.
func (*Remote) Impair(context.Context, int, Impairment) error { return errLinux }

// SetLink says that there are no kernel labs here.
func (*Remote) SetLink(context.Context, int, bool) error { return errLinux }

// Console says that there are no kernel labs here.
func (*Remote) Console(context.Context, int) (string, error) { return "", errLinux }

// Run says that there are no kernel labs here.
func (*Remote) Run(context.Context, []string, <-chan os.Signal) (int, error) { return 0, errLinux }

// Down says that there are no kernel labs here.
func (*Remote) Down(context.Context) error { return errLinux }

// Bare is false.
func Bare() (bool, error) { return false, nil }

// Lab cannot be had.
type Lab struct{}

// UpHere says that there are no kernel labs here.
func UpHere(context.Context, Config) (*Lab, error) { return nil, errLinux }

// Exec says that there are no kernel labs here.
func (*Lab) Exec(context.Context, int, guest.Command) (int, error) { return 0, errLinux }

// Put says that there are no kernel labs here.
func (*Lab) Put(context.Context, int, string, os.FileMode, int64, io.Reader) error { return errLinux }

// Restart says that there are no kernel labs here.
func (*Lab) Restart(context.Context, int) error { return errLinux }

// Printed says that there are no kernel labs here.
func (*Lab) Printed(int, int64) (string, int64, error) { return "", 0, errLinux }

// Output says that there are no kernel labs here.
func (*Lab) Output(context.Context, int, guest.Command) (string, int, error) {
	return "", 0, errLinux
}

// Guests is empty.
func (*Lab) Guests() []Guest { return nil }

// Status is empty.
func (*Lab) Status() []Status { return nil }

// Accel is none.
func (*Lab) Accel() Accel { return Auto }

// Down does nothing.
func (*Lab) Down() error { return nil }
