//go:build !linux

package live

import (
	"context"
	"errors"

	"github.com/fabrictest/fabrictest/scenarios"
)

var errLinux = errors.New("a lab needs network namespaces, which only Linux has; scenarios run in simulation here")

// Up fails: labs need Linux.
func Up(context.Context, Config) error { return errLinux }

// List returns no labs.
func List(context.Context) ([]string, error) { return nil, nil }

// Query fails: labs need Linux.
func Query(context.Context, string) (*Info, error) { return nil, errLinux }

// Down fails: labs need Linux.
func Down(context.Context, string) error { return errLinux }

// SetLink fails: labs need Linux.
func SetLink(context.Context, string, string, bool) error { return errLinux }

// Impair fails: labs need Linux.
func Impair(context.Context, string, string, string) error { return errLinux }

// Exec fails: labs need Linux.
func Exec(context.Context, string, string, []string) (int, error) { return 0, errLinux }

// ServeMain fails: labs need Linux.
func ServeMain() error { return errLinux }

// RunProgram fails: labs need Linux.
func RunProgram(context.Context, *scenarios.Scenario, Program) (int, error) { return 0, errLinux }

// ProgramMain fails: labs need Linux.
func ProgramMain() (int, error) { return 0, errLinux }
