//go:build !linux

package live

import (
	"context"
	"errors"

	"github.com/fabrictest/fabrictest/scenarios"
)

var errLinux = errors.New("a lab needs network namespaces, which only Linux has; scenarios run in simulation here")

// Up says that there are no labs here; so do all others.
func Up(context.Context, Config) error { return errLinux }

// List is empty.
func List(context.Context) ([]string, error) { return nil, nil }

// Ask says that there are no labs here.
func Ask(context.Context, string) (*Info, error) { return nil, errLinux }

// Down says that there are no labs here.
func Down(context.Context, string) error { return errLinux }

// SetLink says that there are no labs here.
func SetLink(context.Context, string, string, bool) error { return errLinux }

// Impair says that there are no labs here.
func Impair(context.Context, string, string, string) error { return errLinux }

// Exec says that there are no labs here.
func Exec(context.Context, string, string, []string) (int, error) { return 0, errLinux }

// ServeMain says that there are no labs here.
func ServeMain() error { return errLinux }

// RunOnce says that there are no labs here.
func RunOnce(context.Context, *scenarios.Scenario, Once) (int, error) { return 0, errLinux }

// OnceMain says that there are no labs here.
func OnceMain() (int, error) { return 0, errLinux }
