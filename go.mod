module github.com/fabrictest/fabrictest

go 1.26
