//go:build !linux

package perflab

import (
	"context"
	"errors"
	"fmt"
	"runtime"
)

var errNotLinux = fmt.Errorf("measurements need Linux: %w on %s", errors.ErrUnsupported, runtime.GOOS)

// measure fails: it is written for Linux only.
func measure(context.Context, *job, func(labMessage)) error { return errNotLinux }
