package config

import "slices"

// Exec is a provider of type exec: a program, JSON in, JSON out.
type Exec struct {
	// Command is the program and its arguments, passed on as they are, without
	// a shell. At least the program; it is looked up as os/exec does.
	Command []string
	// Dir is the folder to run it in; empty: the worker's own.
	Dir string
	// EnvPass names the variables of the worker's environment that the program
	// gets; nil: none beyond those that the worker sets.
	EnvPass []string
}

func (Exec) providerType() string { return "exec" }

// ownVariables are set by the worker for each attempt.
var ownVariables = []string{"JOBLEDGER_ATTEMPT", "JOBLEDGER_JOB_ID", "TRACEPARENT"}

func readExec(o *object) ProviderSpec {
	var e Exec
	need(o, "command", &e.Command, commandExpected, command)
	set(o, "dir", &e.Dir, filledText)
	set(o, "env_pass", &e.EnvPass, listOf(0, "a list of environment variables' names", passedVariable))
	return e
}

const commandExpected = "a list of the program and its arguments"

// command may repeat its arguments; its program may not be empty.
func command(n node) ([]string, bool) {
	args, ok := readList(n, 1, commandExpected, argument, false)
	if ok && args[0] == "" {
		n.reject("an empty program's name", commandExpected)
		return nil, false
	}
	return args, ok
}

func passedVariable(n node) (string, bool) {
	name, ok := environmentVariable(n)
	if ok && slices.Contains(ownVariables, name) {
		n.reject("a variable that the worker sets itself", "another one")
		return "", false
	}
	return name, ok
}
