//go:build !linux

package kernel

import (
	"context"
	"errors"
	"os"
	"time"
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

// Connect fails: kernel labs need Linux.
func Connect(string) (*Remote, error) { return nil, errLinux }

// roundTrip fails: kernel labs need Linux.
func (*Remote) roundTrip(context.Context, time.Duration, *request) (reply []byte, pid int, err error) {
	return nil, 0, errLinux
}

// Run fails: kernel labs need Linux.
func (*Remote) Run(context.Context, []string, <-chan os.Signal) (int, error) { return 0, errLinux }

// Down fails: kernel labs need Linux.
func (*Remote) Down(context.Context) error { return errLinux }

// IsEmptyNamespace is false.
func IsEmptyNamespace() (bool, error) { return false, nil }

// Lab needs Linux.
type Lab struct{ guestClient }

// UpInCurrentNamespace fails: kernel labs need Linux.
func UpInCurrentNamespace(context.Context, Config) (*Lab, error) { return nil, errLinux }

// Restart fails: kernel labs need Linux.
func (*Lab) Restart(context.Context, int) error { return errLinux }

// ConsoleSince fails: kernel labs need Linux.
func (*Lab) ConsoleSince(int, int64) (string, int64, error) { return "", 0, errLinux }

// Guests returns no guests.
func (*Lab) Guests() []Guest { return nil }

// Status returns no guests.
func (*Lab) Status() []Status { return nil }

// Accel returns an empty string.
func (*Lab) Accel() Accel { return Auto }

// Down does nothing.
func (*Lab) Down() error { return nil }
