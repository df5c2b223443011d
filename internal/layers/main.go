package main

import (
	"flag"
	"fmt"
	"os"
)

const module = "github.com/fabrictest/fabrictest"

func main() {
	parts := flag.Bool("parts", false, "print the packages of which only some tests run with -race")
	pattern := flag.Bool("run", false, "print the go test -run pattern that selects those tests")
	flag.Parse()
	if *pattern {
		fmt.Println(runPattern())
		return
	}
	all, err := racedPackages(".")
	if err != nil {
		fmt.Fprintln(os.Stderr, "layers:", err)
		os.Exit(1)
	}
	for _, p := range all {
		if _, isPart := partOf(p.name()); p.raced() && isPart == *parts {
			fmt.Println(p.ImportPath)
		}
	}
}
