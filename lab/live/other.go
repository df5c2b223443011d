//go:build !linux

package live

import (
	"context"
	"errors"

	"github.com/fabrictest/fabrictest/scenarios"
)

// errLinux is the error of every function of the package on this system.
var errLinux = errors.New("a lab needs network namespaces, which only Linux has; scenarios run in simulation here")

func Up(context.Context, Config) error                                      { return errLinux }
func List(context.Context) ([]string, error)                                { return nil, nil }
func Query(context.Context, string) (*Info, error)                          { return nil, errLinux }
func Down(context.Context, string) error                                    { return errLinux }
func SetLink(context.Context, string, string, bool) error                   { return errLinux }
func Impair(context.Context, string, string, string) error                  { return errLinux }
func Exec(context.Context, string, string, []string) (int, error)           { return 0, errLinux }
func ServeMain() error                                                      { return errLinux }
func RunProgram(context.Context, *scenarios.Scenario, Program) (int, error) { return 0, errLinux }
func ProgramMain() (int, error)                                             { return 0, errLinux }
