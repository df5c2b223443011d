//go:build !linux

package perflab

import (
	"errors"
	"fmt"
	"runtime"
)

func bindProcess(int) error {
	return fmt.Errorf("%w on %s", errors.ErrUnsupported, runtime.GOOS)
}

func twoCPUs() (a, b int) { return 0, 0 }
