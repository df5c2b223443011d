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

// Check fails: kernel labs need Linux.
func Check() error { return errLinux }

// Start fails: kernel labs need Linux.
func Start(context.Context, string, Config) error { return errLinux }

// List returns no labs.
func List() ([]string, error) { return nil, nil }

// ServeMain fails: kernel labs need Linux.
func ServeMain() error { return errLinux }

// RunProgram fails: kernel labs need Linux.
func RunProgram(context.Context, Config, []string) (int, error) { return 0, errLinux }

// ProgramMain fails: kernel labs need Linux.
func ProgramMain() (int, error) { return 0, errLinux }

// Remote needs Linux.
type Remote struct{}

// Connect fails: kernel labs need Linux.
func Connect(string) (*Remote, error) { return nil, errLinux }

// Info fails: kernel labs need Linux.
func (*Remote) Info(context.Context) (*Info, error) { return nil, errLinux }

// Exec fails: kernel labs need Linux.
func (*Remote) Exec(context.Context, int, guest.Command) (int, error) { return 0, errLinux }

// Output fails: kernel labs need Linux.
func (*Remote) Output(context.Context, int, guest.Command) (string, int, error) {
	return "", 0, errLinux
}

// Put fails: kernel labs need Linux.
func (*Remote) Put(context.Context, int, string, os.FileMode, int64, io.Reader) error {
	return errLinux
}

// SetDevices fails: kernel labs need Linux.
func (*Remote) SetDevices(context.Context, int, []guest.Device) error { return errLinux }

// Restart fails: kernel labs need Linux.
func (*Remote) Restart(context.Context, int) error { return errLinux }

// Impair fails: kernel labs need Linux.
func (*Remote) Impair(context.Context, int, Impairment) error { return errLinux }

// SetLink fails: kernel labs need Linux.
func (*Remote) SetLink(context.Context, int, bool) error { return errLinux }

// Console fails: kernel labs need Linux.
func (*Remote) Console(context.Context, int) (string, error) { return "", errLinux }

// Run fails: kernel labs need Linux.
func (*Remote) Run(context.Context, []string, <-chan os.Signal) (int, error) { return 0, errLinux }

// Down fails: kernel labs need Linux.
func (*Remote) Down(context.Context) error { return errLinux }

// IsEmptyNamespace is false.
func IsEmptyNamespace() (bool, error) { return false, nil }

// Lab needs Linux.
type Lab struct{}

// UpInCurrentNamespace fails: kernel labs need Linux.
func UpInCurrentNamespace(context.Context, Config) (*Lab, error) { return nil, errLinux }

// Exec fails: kernel labs need Linux.
func (*Lab) Exec(context.Context, int, guest.Command) (int, error) { return 0, errLinux }

// Put fails: kernel labs need Linux.
func (*Lab) Put(context.Context, int, string, os.FileMode, int64, io.Reader) error { return errLinux }

// Restart fails: kernel labs need Linux.
func (*Lab) Restart(context.Context, int) error { return errLinux }

// ConsoleSince fails: kernel labs need Linux.
func (*Lab) ConsoleSince(int, int64) (string, int64, error) { return "", 0, errLinux }

// Output fails: kernel labs need Linux.
func (*Lab) Output(context.Context, int, guest.Command) (string, int, error) {
	return "", 0, errLinux
}

// Guests returns no guests.
func (*Lab) Guests() []Guest { return nil }

// Status returns no guests.
func (*Lab) Status() []Status { return nil }

// Accel returns an empty string.
func (*Lab) Accel() Accel { return Auto }

// Down does nothing.
func (*Lab) Down() error { return nil }
