//go:build !linux

package kernel

import (
	"context"
	"errors"
	"os"
	"time"
)

// errLinux is the error of every function that needs Linux.
var errLinux = errors.New("kernel labs are made of Linux namespaces and QEMU: run them on Linux, on x86-64")

func Check() error                                                           { return errLinux }
func Start(context.Context, string, Config) error                            { return errLinux }
func List() ([]string, error)                                                { return nil, nil }
func ServeMain() error                                                       { return errLinux }
func RunProgram(context.Context, Config, []string) (int, error)              { return 0, errLinux }
func ProgramMain() (int, error)                                              { return 0, errLinux }
func Connect(string) (*Remote, error)                                        { return nil, errLinux }
func IsEmptyNamespace() (bool, error)                                        { return false, nil }
func UpInCurrentNamespace(context.Context, Config) (*Lab, error)             { return nil, errLinux }
func (*Remote) Run(context.Context, []string, <-chan os.Signal) (int, error) { return 0, errLinux }
func (*Remote) Down(context.Context) error                                   { return errLinux }
func (*Remote) roundTrip(context.Context, time.Duration, *request) (reply []byte, pid int, err error) {
	return nil, 0, errLinux
}

// Lab needs Linux.
type Lab struct {
	guestClient
	Accel Accel
}

func (*Lab) Restart(context.Context, int) error             { return errLinux }
func (*Lab) ConsoleSince(int, int64) (string, int64, error) { return "", 0, errLinux }
func (*Lab) Guests() []Guest                                { return nil }
func (*Lab) Status() []Status                               { return nil }
func (*Lab) Down() error                                    { return nil }
