package kernel

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
)

// MissingError has missing programs or devices, and the command that installs them.
type MissingError struct {
	Missing []string // programs or device files
	Purpose string
	Install string
}

func (e *MissingError) Error() string {
	verb := "is"
	if len(e.Missing) > 1 {
		verb = "are"
	}
	return fmt.Sprintf("%s %s missing, for %s; to have it: %s", strings.Join(e.Missing, ", "), verb, e.Purpose, e.Install)
}

// packageOf has the Debian packages of programs.
var packageOf = map[string]string{
	"apt-get": "apt", "apt-cache": "apt", "dpkg-deb": "dpkg", "xz": "xz-utils", "make": "make", "strip": "binutils",
	"qemu-system-x86_64": "qemu-system-x86",
}

// RequirePrograms returns a MissingError for programs that are not installed.
func RequirePrograms(purpose string, programs ...string) error {
	e := &MissingError{Purpose: purpose, Install: "apt-get install --no-install-recommends"}
	var packages []string
	for _, name := range programs {
		if _, err := exec.LookPath(name); err == nil {
			continue
		}
		e.Missing = append(e.Missing, name)
		pkg := packageOf[name]
		if pkg == "" {
			pkg = name // for compilers
		}
		if !slices.Contains(packages, pkg) {
			packages = append(packages, pkg)
		}
	}
	if e.Missing == nil {
		return nil
	}
	e.Install += " " + strings.Join(packages, " ") + " (Debian, Ubuntu; as root)"
	return e
}
